"""Runs: the YAML spec, the workspace of run folders, and what train, resume, eval and play do."""
