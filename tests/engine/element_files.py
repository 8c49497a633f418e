"""Files of elements that come in some disorder, for tests of runs over files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any


def write(path: Path, elements: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(element) + "\n" for element in elements))
    return str(path)


def some(seed: int, count: int, column: str, adjusts: float = 0.1, promises: float = 0.05) -> list[dict[str, Any]]:
    """A stream with disorder, adjusts and promises."""
    rng = random.Random(seed)
    found: list[dict[str, Any]] = []
    there: list[dict[str, Any]] = []
    cti = 0
    for i in range(count):
        vs = max(cti, i // 4 + rng.randrange(-3, 4))
        row = {"k": rng.choice("abc"), column: rng.randrange(9)}
        element: dict[str, Any] = {"op": "insert", "vs": vs, "ve": vs + rng.randrange(1, 6), "row": row}
        there.append(element)
        found.append(element)
        if rng.random() < adjusts:
            one = there.pop(rng.randrange(len(there)))
            if one["vs"] >= cti:
                found.append({**one, "op": "adjust", "vnew": one["vs"]})
        if rng.random() < promises:
            cti = max(cti, i // 4 - 4)
            found.append({"op": "cti", "t": cti})
    return found
