"""Runs that go on, measured: how soon a line that was written is answered on disk, and whether anything grows.

    python bench/follow.py latency [SECONDS] [RATE]   a writer appends lines at a rate: the time from a line written to
                                                      the manifest with its answer
    python bench/follow.py memory [ELEMENTS]          two runs in a chain, the second reads the folder of the first and
                                                      frees it: memory of both, bytes of folders, ten times on the way

The query counts bids per item over five seconds of application time; a tick is a millisecond; a CTI comes every 10 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from measure import percentile, report

EVERY = 0.01
"""Seconds between two pieces of a file."""
PASS = "SELECT item, seq FROM Bid WHERE item >= 0"
COUNT = "SELECT item, COUNT(*) AS n, MAX(seq) AS newest FROM Bid WINDOW(RANGE 5 SECONDS SLIDE 1 SECOND) GROUP BY item"
TOTAL = "SELECT SUM(n) AS n FROM Counted"


def started(place: Path, name: str, query: str, source: str, file: Path | str, keep: str) -> subprocess.Popen[bytes]:
    """A run that goes on."""
    text = place / f"{name}.sql"
    text.write_text(query)
    command = [sys.executable, "-m", "everwhen.cli", "run", str(text), "--follow", "--in", f"{source}={file}"]
    command += ["--out", f"{place / name}/", "--checkpoint", str(place / f"{name}-state"), "--keep", keep]
    return subprocess.Popen([*command, "--allow-unbounded"])


def write(file: Path, seconds: float, rate: int) -> dict[int, float]:
    """Append lines for some time; when each was written."""
    written: dict[int, float] = {}
    began, seq = time.time(), 0
    with open(file, "ab", buffering=0) as out:
        while (now := time.time()) < began + seconds:
            wanted = int((now - began) * rate)
            t = int((now - began) * 1000)
            lines = [f'{{"vs":{t},"row":{{"item":{i % 50},"seq":{i}}}}}\n' for i in range(seq, wanted)]
            out.write("".join([*lines, f'{{"op":"cti","t":{t}}}\n']).encode())
            at = time.time()
            written.update((i, at) for i in range(seq, wanted))
            seq = max(seq, wanted)
            time.sleep(max(0.0, EVERY - (time.time() - now)))
        out.write(b'{"op":"cti","t":null}\n')
    return written


def latency(seconds: float, rate: int) -> None:
    """The first second does not count: loops are loaded."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        file = place / "bids.jsonl"
        file.write_text('{"vs":0,"row":{"item":0,"seq":-1}}\n')
        run = started(place, "answer", PASS, "Bid", file, "all")
        while not (place / "answer" / "_epochs").exists() or not any((place / "answer" / "_epochs").iterdir()):
            time.sleep(0.05)
        written = write(file, seconds, rate)
        if run.wait(120):
            raise SystemExit("the run failed")
        delays = []
        for manifest in (place / "answer" / "_epochs").glob("*.json"):
            there = manifest.stat().st_mtime
            for part in json.loads(manifest.read_text())["parts"]:
                for seq in _seqs(place / "answer" / part):
                    if seq in written and written[seq] > written[0] + 1:
                        delays.append(there - written[seq])
        missing = len([at for at in written.values() if at > written[0] + 1]) - len(delays)
        assert not missing, f"{missing} answers are not there"
        shown = {f"p{share}": round(1000 * percentile(delays, share / 100), 1) for share in (50, 90, 99)}
        most = round(1000 * max(delays), 1)
        note = f"{rate:,} lines a second, {len(delays):,} answers; p90 {shown['p90']} ms, most {most} ms"
        report(
            "follow", "everwhen-local", len(delays), seconds, case="latency", rate=rate, milliseconds=shown, note=note,
            latency_p50_ms=shown["p50"], latency_p99_ms=shown["p99"],
        )  # fmt: skip


def _seqs(part: Path) -> list[int]:
    if part.suffix == ".parquet":
        table = pq.read_table(part)
        return (
            [seq for seq in table.column("seq").to_pylist() if seq is not None] if "seq" in table.column_names else []
        )
    lines = (json.loads(line) for line in part.read_text().splitlines())
    return [each["row"]["seq"] for each in lines if "row" in each]


def memory(elements: int) -> None:
    """A piece of 10,000 elements at a time, as fast as the runs take them: the writer stays 500,000 ahead at most."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        file = place / "bids.jsonl"
        file.touch()
        query = f"CREATE STREAM Bid (item INT, seq INT); {COUNT}"
        first = started(place, "counted", query, "Bid", file, "unread")
        second = started(place, "total", TOTAL, "Counted", f"{place / 'counted'}/", "all")
        began, marks = time.time(), []
        with open(file, "ab") as out:
            for at in range(0, elements, 10_000):
                t = at // 50
                lines = [f'{{"vs":{t + i // 50},"row":{{"item":{i % 50},"seq":{at + i}}}}}\n' for i in range(10_000)]
                out.write("".join([*lines, f'{{"op":"cti","t":{t}}}\n']).encode())
                out.flush()
                if at % max(elements // 10, 10_000) == 0 and at:
                    _caught_up(place, file)
                    marks.append(
                        (at, _rss(first), _rss(second), _size(place / "counted"), _size(place / "counted-state"))
                    )
            out.write(b'{"op":"cti","t":null}\n')
        if first.wait(600) or second.wait(600):
            raise SystemExit("a run failed")
        seconds = time.time() - began
        (_, one, two, between, state), (_, *last) = marks[0], marks[-1]
        note = (
            f"two runs in a chain, after a tenth and at the end: {one:.0f} and {last[0]:.0f} MB, {two:.0f} and "
            f"{last[1]:.0f} MB; the folder between them {between} and {last[2]} MB, checkpoint {state} and {last[3]} MB"
        )
        report("follow", "everwhen-local", elements, seconds, case="memory", marks=marks, note=note)


def _caught_up(place: Path, file: Path) -> None:
    """Wait until the first run has read all that is there."""
    size = file.stat().st_size
    while True:
        manifests = sorted((place / "counted" / "_epochs").glob("*.json"), key=lambda each: int(each.stem))
        for manifest in reversed(manifests[-5:]):
            try:
                if f'"offset":{size}' in manifest.read_text():
                    time.sleep(1.0)
                    return
            except OSError:
                continue
        time.sleep(0.05)


def _rss(process: subprocess.Popen[bytes]) -> float:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def _size(folder: Path) -> float:
    total = 0
    for each in folder.rglob("*"):
        try:
            total += each.stat().st_size
        except OSError:
            continue
    return round(total / 1e6, 2)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["latency", *rest]:
            latency(float(rest[0]) if rest else 60.0, int(rest[1]) if len(rest) > 1 else 5_000)
        case ["memory", *rest]:
            memory(int(rest[0]) if rest else 10_000_000)
        case _:
            raise SystemExit(__doc__)
