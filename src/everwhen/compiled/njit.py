"""Compiled loops, and when they are compiled: the only way to Numba's compiler.

**Without reference counts.**  Numba counts references to arrays, also where a function that is written into a loop gets
one: an atomic operation each, which can cost more than what the function does.  A `loop` counts none, so it may not
make arrays, nor give back any; what it needs is handed in.  Numba does not promise the option: where there is none,
references are counted.

A loop may run for long, so it gives up the interpreter's lock: signals are acted on meanwhile, and a worker that holds
state answers others.

**When a loop is compiled.**  A grouped query needs about 55 compiled loops.  On an empty cache they cost 65 s of one
core (measured, Numba 0.68): LLVM takes half of it, writing functions into each other a fifth, types and SSA form
another fifth, and two loops of the sweep (`visit`, `pass_by`) a third of all.  No setting brings that near a second
(`NUMBA_OPT=1` saves nothing), and four rows do not earn it.  The loops are plain Python over NumPy arrays, though.
So a loop that is neither compiled nor on disk is *interpreted* (`interpreted.py`), until that has taken as long as
its compilation would take, in this process and in earlier ones (`accounts.py`):

* a short run never compiles anything, and answers in about two seconds;
* a long run takes at most about twice as long as one that compiles at once, and mostly less, since loops that are
  seldom run are never compiled;
* a call over long arrays is compiled before it is run: an interpreted call can not be interrupted.

What a loop computes is the same in both ways, bit by bit; only the time differs.  Calls of compiled loops are not
touched: Numba asks us only when it has no compiled version for the types of the arguments.

**Between processes.**  Whoever compiles a loop claims it with a lock in the cache folder (`claims.py`).  Others
interpret it meanwhile, or wait where that would take long, and then load it.  So workers of Spark and of pytest
share the work instead of doing it twice.

`EVERWHEN_COMPILE` chooses: `auto` (default) as above; `eager` compiles a loop when it is called for the first time
(unless another process is just doing so), which benchmarks and tests want; `never` only interprets, also what is on
disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import OmittedArg
from numba.core.options import DefaultOptions
from numba.core.registry import CPUDispatcher
from numba.types import Omitted

from everwhen.compiled.accounts import Account
from everwhen.compiled.claims import Claim
from everwhen.compiled.flat_call import flat_call
from everwhen.compiled.interpreted import interpreted
from everwhen.compiled.loop_code import LoopCache, code_digest, code_size
from everwhen.errors import EverwhenError

_UNCOUNTED: Final[dict[str, Any]] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

_MODES: Final = ("auto", "eager", "never")
_COMPILE_S_PER_BYTE: Final = 0.0005
"""Seconds of compilation per byte of Python's code, with that of the functions that are called."""
_PATIENCE_S: Final = 0.5
"""An interpreted call may take so long while another process compiles the loop."""


class Loop(CPUDispatcher):
    """A function with its compiled versions, one per types of arguments; interpreted until it has earned one."""

    _account: Account | None = None
    _call: Callable[..., Any] | None = None

    def _compile_for_args(self, *args: Any) -> Callable[..., Any]:
        """What runs a call for whose types nothing is compiled: Numba calls it with the same arguments."""
        mode = _chosen_mode()
        if mode == "auto":
            loaded = self._loaded(args)
            if loaded is not None:
                return loaded
        if mode == "never" or not self._has_earned(args):
            self._types_active_call.clear()
            return self._interpret
        compiled = super()._compile_for_args(*args)
        self.account.settle()
        return compiled

    def compile(self, sig: Any) -> Any:
        with self._claim():
            return super().compile(sig)

    def enable_caching(self) -> None:
        with suppress(RuntimeError):  # no folder can be written: each process compiles for itself
            self._cache = LoopCache(self.py_func)

    @property
    def account(self) -> Account:
        """What interpreting this loop has cost so far."""
        if self._account is None:
            self._account = Account(self._name, code_digest(self.py_func), self._cache.cache_path)
        return self._account

    @property
    def _name(self) -> str:
        return f"{self.py_func.__module__}.{self.py_func.__qualname__}"

    def _claim(self) -> Claim:
        return Claim(self._cache.cache_path, self._name)

    def _loaded(self, args: tuple[Any, ...]) -> Any:
        """The version for these arguments from disk; None if it is not there, or not yet."""
        stamp = self._cache.stamp() if isinstance(self._cache, LoopCache) else None
        if stamp is None:
            return None
        signature = tuple(Omitted(arg.value) if type(arg) is OmittedArg else self.typeof_pyval(arg) for arg in args)
        missed = self.__dict__.setdefault("_missed", {})
        claim = self._claim()
        if missed.get(signature) == stamp or not claim.take():
            return None
        try:
            with global_compiler_lock:
                found = self._cache.load_overload(signature, self.targetctx)
                if found is not None:  # what Numba does with it
                    self._cache_hits[signature] += 1
                    self.targetctx.insert_user_function(found.entry_point, found.fndesc, [found.library])
                    self.add_overload(found)
                    self._types_active_call.clear()
                    return found.entry_point
        finally:
            claim.release()
        missed[signature] = stamp
        return None

    def _has_earned(self, args: tuple[Any, ...]) -> bool:
        """Whether to compile now rather than to interpret this call."""
        ahead = self.account.expected(_items(args))
        if _chosen_mode() == "auto" and self.account.spent + ahead < code_size(self.py_func) * _COMPILE_S_PER_BYTE:
            return False
        if ahead > _PATIENCE_S:
            return True
        claim = self._claim()
        is_free = claim.take()
        claim.release()
        return is_free

    def _interpret(self, *args: Any) -> Any:
        if self._call is None:
            self._call = interpreted(self)
        start = time.thread_time()
        try:
            return self._call(*args)
        finally:
            if _chosen_mode() == "auto":
                self.account.spend(time.thread_time() - start, _items(args))


def _items(args: tuple[Any, ...]) -> int:
    """The length of the longest array, also of those in tuples."""
    most = 0
    for arg in args:
        if isinstance(arg, np.ndarray):
            most = max(most, len(arg))
        elif isinstance(arg, tuple):
            most = max(most, _items(arg))
    return most


_MODE: Final[ContextVar[str]] = ContextVar("everwhen-compile", default="")


class _Choice:
    """The mode that was chosen here; work that is done in a thread of its own has it, too (`copy_context`)."""

    @property
    def mode(self) -> str:
        return _MODE.get()

    @mode.setter
    def mode(self, mode: str) -> None:
        _MODE.set(mode)


_choice = _Choice()


def _chosen_mode() -> str:
    return _choice.mode or _mode_from_environment()


@cache
def _mode_from_environment() -> str:
    mode = os.environ.get("EVERWHEN_COMPILE") or "auto"
    if mode not in _MODES:
        raise EverwhenError(f"EVERWHEN_COMPILE is {mode!r}; it must be one of {', '.join(_MODES)}")
    return mode


@contextmanager
def compiling_at_once() -> Iterator[None]:
    """What is called within is compiled when it is called for the first time, unless nothing is to be compiled."""
    before, _choice.mode = _choice.mode, "never" if _mode_from_environment() == "never" else "eager"
    try:
        yield
    finally:
        _choice.mode = before


def njit(*, cache: bool = True, **options: Any) -> Callable[[Any], Any]:
    """Numba's decorator, for functions that may make arrays, and for those that are written into others."""

    def compiled(function: Any) -> Any:
        dispatcher = numba.njit(**options)(function)
        if isinstance(dispatcher, CPUDispatcher):  # NUMBA_DISABLE_JIT gives the function back
            dispatcher.__class__ = Loop
            if cache:
                dispatcher.enable_caching()
        return dispatcher

    return compiled


def loop(function: Any) -> Any:
    """Compile a function that makes no arrays."""
    return njit(nogil=True, **_UNCOUNTED)(function)


def loop_of(**tuples: type) -> Callable[[Any], Any]:
    """Compile a function that makes no arrays and takes named tuples, by the names of its parameters."""

    def compiled(function: Any) -> Any:
        made = loop(function)
        if isinstance(made, Loop):
            call = staticmethod(flat_call(made, tuples, loop))
            made.__class__ = type("Loop", (Loop,), {"__call__": call})
        return made

    return compiled
