"""What the tests of explanations share: configurations without their warnings, lines by key, a spoilt trace."""

import contextlib
import sqlite3
import warnings

from workbench.config import MAGRPOConfig


def config(cls=MAGRPOConfig, **values):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(**values)


def by_key(explanation):
    return {line.key: line for line in explanation.lines}


def change(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement).rowcount > 0
