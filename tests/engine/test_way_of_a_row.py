"""How many of our files a row passes in process, from JSON line to JSON line.

A reader of the code follows a row through these files; ARCHITECTURE.md draws them.  Counted is where a function runs
while one epoch of a grouped sum goes through a plan that is at work; a compiled loop counts as the file that it is in,
and what the compiler writes into it is not seen.  `core`, `errors` and `__init__` are not counted: they hold words, not
steps.
"""

import io
import re
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import everwhen as ew
from everwhen.engine.run import run_batches
from everwhen.formats.json.lines import write_jsonlines

MOST_FILES = 25
ROOT = Path(ew.__file__).parent
DRAWN = Path(__file__).parents[2] / "ARCHITECTURE.md"
NOT_COUNTED = ("core/", "errors.py")
EPOCH = 2_000
LATE = 3
TRIES = 12


def lines(first: int) -> list[str]:
    """An epoch of a dirty stream: late events, removals, and what is promised in the end."""
    made: list[str] = []
    t = first
    while len(made) < EPOCH - 1:
        row = f'{{"key":"k{t % 7}","value":{t % 100}}}'
        made.append(f'{{"vs":{t},"row":{row}}}')
        if t % 10 == 9:
            made.append(f'{{"op":"adjust","vs":{t},"ve":{t + 1},"vnew":{t},"row":{row}}}')
        if t % 10 == 8:
            made.append(f'{{"vs":{t - LATE},"row":{{"key":"late","value":1}}}}')
        t += 1
    return [*made[: EPOCH - 1], f'{{"op":"cti","t":{t - 2 * LATE}}}']


class Trace:
    """Which files run functions, and how many, in one thread."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            self.calls[str(Path(frame.f_code.co_filename).relative_to(ROOT))] += 1

    @property
    def files(self) -> list[str]:
        return sorted(f for f in self.calls if not f.startswith(NOT_COUNTED) and not f.endswith("__init__.py"))


def test_a_grouped_sum_passes_few_files(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    stream = (line for epoch in range(4 + TRIES) for line in lines(epoch * EPOCH))
    path.write_text("\n".join(stream) + "\n", encoding="utf-8")
    source = ew.source("S", {"key": "string", "value": "int64"})
    query = source.range(60).group_by("key").agg(value=ew.sum("value"))
    # Who hands in a function has all of it called in his thread, which is the one that is traced.
    answers = run_batches(query, {"S": path}, batch=EPOCH, emit="current", dropped=lambda name, lost: None)
    out = io.StringIO()
    write_jsonlines([next(answers) for _ in range(4)], out)  # what is compiled, loaded and reserved is there
    before = len(out.getvalue())
    for at in range(TRIES):
        trace = Trace()
        sys.setprofile(trace)
        try:
            write_jsonlines([next(answers)], out)
        finally:
            sys.setprofile(None)
        if len(trace.files) <= MOST_FILES:
            break
        time.sleep(at)  # a loop that another process compiles just now is interpreted meanwhile
    assert "operators/sweep/loops/sweep.py" in trace.files, "compiled loops are seen"
    assert len(out.getvalue()) > before, "rows have come out"
    assert len(trace.files) <= MOST_FILES, "\n".join([f"{len(trace.files)} files:", *trace.files])
    drawing = DRAWN.read_text(encoding="utf-8").partition("## The way of a row in process")[2].partition("```\n")[0]
    names = set(re.findall(r"\w+", drawing))
    assert not [file for file in trace.files if Path(file).stem not in names], "ARCHITECTURE.md draws the way"
    assert f"the {len(trace.files)} files that a grouped sum passes" in DRAWN.read_text(encoding="utf-8")
