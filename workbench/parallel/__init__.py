"""Where models live. A trainer sees a Team of handles and never a model."""
