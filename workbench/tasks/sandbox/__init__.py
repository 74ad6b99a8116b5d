"""A sandbox for programs that models wrote: run them against tests, believe nothing they say about themselves."""

from workbench.tasks.sandbox.cases import Case, first_called, split_tests
from workbench.tasks.sandbox.runner import (
    LAYERS,
    Failure,
    Limits,
    Program,
    SandboxError,
    Verdict,
    missing_layers,
    run_tests,
    warn_of_missing,
)

__all__ = [
    "LAYERS",
    "Case",
    "Failure",
    "Limits",
    "Program",
    "SandboxError",
    "Verdict",
    "first_called",
    "missing_layers",
    "run_tests",
    "split_tests",
    "warn_of_missing",
]
