"""States as trees of plain data: what stands at a path, parts of columns and of runs, and what several have alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def value_at(state: Any, path: str) -> Any:
    for name in path.split("."):
        state = state[int(name)] if isinstance(state, list) else state[name]
    return state


def with_values(whole: Any, given: dict[str, Any]) -> Any:
    """A tree with values at some paths."""
    found = copied(whole)
    for path, value in given.items():
        *way, last = path.split(".")
        into = found
        for name in way:
            into = into[int(name)] if isinstance(into, list) else into[name]
        into[last] = value
    return found


def copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: copied(each) for name, each in tree.items()}
    return [copied(each) for each in tree] if isinstance(tree, list) else tree


def without(tree: Any, paths: tuple[str, ...], here: str = "") -> Any:
    if isinstance(tree, dict):
        return {k: without(v, paths, f"{here}{k}.") for k, v in tree.items() if f"{here}{k}" not in paths}
    if isinstance(tree, list) and any(path.startswith(here) for path in paths):
        return [without(each, paths, f"{here}{at}.") for at, each in enumerate(tree)]
    return tree


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b)
    return bool(a == b)


def run_rows(offsets: np.ndarray, picked: np.ndarray) -> np.ndarray:
    """The rows of some runs, one run after the other."""
    lengths = np.diff(offsets)[picked]
    starts = np.repeat(offsets[:-1][picked] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return (starts + np.arange(int(lengths.sum()))).astype(np.int64) if len(picked) else np.empty(0, np.int64)


def taken(values: Any, at: np.ndarray) -> Any:
    if isinstance(values, np.ndarray):
        return values[at]
    if isinstance(values, pa.Array):
        return values.take(pa.array(at))
    return [taken(each, at) for each in values]


def put_together(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    kind = type(parts[0])
    return kind(put_together(list(each)) for each in zip(*parts, strict=True))


def counted(parts: Sequence[dict[str, Any]], at: int) -> dict[str, Any]:
    """What was counted in all, for the first partition."""
    names = [name for name in ("rows_in", "rows_out") if name in parts[0]]
    found: dict[str, Any] = {name: sum(part[name] for part in parts) if at == 0 else 0 for name in names}
    return found | ({"max_end": max(part["max_end"] for part in parts)} if "max_end" in parts[0] else {})
