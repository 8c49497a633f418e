"""Packages that are used where they are there, and never needed: pandas, Polars, DuckDB, Altair."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from everwhen.errors import EverwhenError


class MissingPackageError(EverwhenError):
    """A package is not installed that one method needs; the message says how to install it."""


def package(name: str, needed_for: str, install: str = "") -> Any:
    """A package that a method needs."""
    try:
        return import_module(name)
    except ImportError as missing:
        if missing.name is not None and missing.name.partition(".")[0] != name:
            raise
        what = install or name
        raise MissingPackageError(f"{needed_for} needs {name}, which is not installed: pip install '{what}'") from None


def is_of(value: object, name: str, *classes: str) -> bool:
    """Whether a value is of one of these classes of a package, which is not imported for that."""
    found = sys.modules.get(name)
    return found is not None and isinstance(value, tuple(getattr(found, each) for each in classes))
