"""Asking Spark's JVM: what it says, or an error with a type if it is not there to say anything.

A JVM that is killed takes all its queries along.  py4j then raises one of several errors, depending on what it was
doing: a refused connection, an empty answer, an error without a cause.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from everwhen.errors import SparkLostError

T = TypeVar("T")


def said(ask: Callable[[], T]) -> T:
    """What the JVM answers; `SparkLostError` if it is gone."""
    try:
        return ask()
    except Py4JJavaError:
        raise  # it is there, and has answered
    except (Py4JError, ConnectionError) as bad:
        if not isinstance(bad, ConnectionError) and _answers():
            raise
        raise lost() from None


@contextmanager
def stopped_after(stop: Callable[[], None]) -> Iterator[None]:
    """Around a use of Spark: it is stopped in the end.  Who is asked to end may be asked together with Spark's JVM, as
    under systemd: then nothing that a JVM on its way out says of the stop hides why the block has ended."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        with suppress(SparkLostError, Py4JError, ConnectionError):
            said(stop)
        raise
    except BaseException:
        with suppress(SparkLostError):
            said(stop)
        raise
    with suppress(SparkLostError):
        said(stop)


def lost() -> SparkLostError:
    """That the JVM is gone, and how as far as that is known."""
    return SparkLostError(
        f"Spark's JVM {_end()}, and the query has stopped with it. Nothing is lost: start the program again with the "
        "same checkpoint, and the query goes on where it was"
    )


def _answers() -> bool:
    """Whether the JVM can be asked anything at all."""
    jvm = SparkContext._jvm
    if jvm is None:
        return False
    try:
        jvm.java.lang.System.nanoTime()
    except (Py4JError, ConnectionError):
        return False
    return True


def _end() -> str:
    process = getattr(SparkContext._gateway, "proc", None)  # where PySpark has started it
    status = None if process is None else process.poll()
    if status is None:
        return "cannot be reached"
    if status < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
    return f"has ended with status {status}"


def short(text: str) -> str:
    """The line of a failure that says what happened: the end of the last Python traceback, or Spark's first word."""
    said, inside = "", False
    for line in text.splitlines():
        if "Traceback (most recent call last)" in line:
            inside = True
        elif inside and line and not line[0].isspace():
            said, inside = line, False
    plain = said or next((line for line in text.splitlines() if line.strip()), "for an unknown reason")
    return re.sub(r"^\[[A-Z_.]+\] | SQLSTATE: \w+$", "", plain.strip())
