"""The two parts of the estimator lab, a module each."""
