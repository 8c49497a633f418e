"""Processes that are forked from one in which everything is loaded already."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerContext

_MODULES: list[str] = []


def forking(*modules: str) -> ForkServerContext:
    """Processes with these modules loaded.  The server of forks imports them by the path of the environment, and says
    nothing if it cannot, so the path of this process goes there.  There is one server, for all who ask."""
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    found = multiprocessing.get_context("forkserver")
    _MODULES.extend(name for name in modules if name not in _MODULES)
    found.set_forkserver_preload(_MODULES)
    return found
