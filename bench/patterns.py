"""The W query of Chandramouli, Goldstein and Maier (5.1) as MATCH_RECOGNIZE, on fair tosses, in process.

    python bench/patterns.py [TOSSES] [BATCH]

W is `U D^i U^j D^k U^l` with `i + k = j + l`, all at least 1, in a window of 30 tosses.  On fair tosses 5 in 54 begin
one (0.0926; the window takes off 1.3e-7).  The clock runs while `push` and `close` run and at no other time.  A short
stream has compiled or loaded the loops before.  Each batch ends with a CTI.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

import everwhen as ew
from everwhen.stream.element_batch import ElementBatch
from measure import report

W = """
CREATE STREAM Toss (t BIGINT, side VARCHAR) INSERT ONLY;
SELECT * FROM Toss WINDOW(RANGE 30) MATCH_RECOGNIZE (
    ORDER BY t
    MEASURES FIRST(t) AS b, LAST(t) AS e
    PATTERN (S D+ U+ E+ X* F)
    DEFINE
        S AS side = 'U', D AS side = 'D', U AS side = 'U', E AS side = 'D',
        X AS side = 'U' AND COUNT(D.*) + COUNT(E.*) > COUNT(U.*) + COUNT(X.*),
        F AS side = 'U' AND COUNT(D.*) + COUNT(E.*) = COUNT(U.*) + COUNT(X.*) + COUNT(F.*)
) W
"""


def tosses(n: int, batch: int, seed: int = 7) -> list[ElementBatch]:
    """So many fair tosses, one per tick, in batches with a CTI behind each."""
    schema = ew.Schema.of([("t", pa.int64()), ("side", pa.string())])
    sides = pa.DictionaryArray.from_arrays(
        pa.array(np.random.default_rng(seed).integers(0, 2, n), pa.int32()), pa.array(["D", "U"])
    ).dictionary_decode()
    found = []
    for first in range(0, n, batch):
        stop = min(first + batch, n)
        t = np.arange(first, stop + 1)
        op = np.full(len(t), ElementBatch.INSERT, np.uint8)
        op[-1] = ElementBatch.CTI
        rows = pa.array(t[:-1]), sides.slice(first, stop - first)
        columns = tuple(pa.concat_arrays([column, pa.nulls(1, column.type)]) for column in rows)
        found.append(ElementBatch(schema, op, t, t + 1, np.zeros(len(t), np.int64), columns))
    return found


def run(n: int, batch: int) -> tuple[int, float, float, int]:
    """Matches found, seconds taken, seconds of the processor, and the most rows kept behind a push."""
    runtime = ew.LocalRuntime(ew.sql(W))
    batches = tosses(n, batch)
    matches, kept = 0, 0
    start, worked = time.perf_counter(), time.process_time()
    for each in batches:
        matches += sum(_net(out) for out in runtime.push({"Toss": each}).values())
        kept = max(kept, runtime.state_size().rows)
    matches += sum(_net(out) for out in runtime.close().values())
    return matches, time.perf_counter() - start, time.process_time() - worked, kept


def _net(batch: ElementBatch) -> int:
    """Inserts without those that are taken back."""
    inserts = int((batch.op == ElementBatch.INSERT).sum())
    adjusts = batch.op == ElementBatch.ADJUST
    return inserts - int((batch.vnew[adjusts] == batch.vs[adjusts]).sum())


def main(n: int = 1_000_000, batch: int = 10_000) -> None:
    run(min(n, 50_000), batch)
    matches, seconds, worked, kept = min((run(n, batch) for _ in range(3)), key=lambda run: run[2])
    note = f"{matches:,} W, {matches / n:.5f} per toss; {n / worked:,.0f}/s of processor time; {kept} rows kept"
    report("patterns", "everwhen-local", n, seconds, per_processor_s=round(n / worked), matches=matches, note=note)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
