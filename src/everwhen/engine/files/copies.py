"""The same query several times, in processes of their own, merged into one answer.

    <place>/copy-<i>/out          the answer of copy i, a changelog folder of which only what the merge has yet to read
    is kept <place>/copy-<i>/checkpoint   its state <place>/merge                 the state of the merge <out>
    the answer: what the copy says that was the first to promise an instant

A copy that dies is started again, and goes on.  If its state is gone it begins with the newest state of a copy of the
same plan.  Meanwhile the others go on, and nothing is missing: the merge follows whoever is ahead.  Copies may be
different plans of one query.  Each is run as it is written; they race.

One process more is always there, ready to take the place of one that dies: to start Python takes longer than to go on.
Whoever keeps dying is started again after a while, which doubles.  A wrong element or a wrong query ends all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everwhen.algebra.builder import Stream, source
from everwhen.algebra.explain import explain
from everwhen.algebra.lmerge import lmerge
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.core.merge_policy import MergePolicy
from everwhen.engine.files import copy_process
from everwhen.engine.files.checkpoint import states_in
from everwhen.engine.files.copy_process import Work, send
from everwhen.engine.files.live_files import live_files
from everwhen.engine.files.run import Progress, Watch
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import InputError, QueryError
from everwhen.formats.changelog.layout import epochs_there, read_manifest
from everwhen.formats.input_file import InputFile, is_changelog
from everwhen.storage.folder import open_folder

Tell = Callable[[str], None]
_LOOK: Final = 0.02
_SHOW: Final = 0.5
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_STEADY: Final = 10.0
"""Who has run for so many seconds is started again at once."""
_GRACE: Final = 3.0
"""Seconds in which a process that is asked to end may end."""


def copies(
    queries: Sequence[Query],
    inputs: Mapping[str, str | InputFile],
    out: str,
    *,
    place: str,
    consistency: Consistency = MIDDLE,
    emit: str | Emit | None = None,
    policy: MergePolicy | None = None,
    batch: int = 10_000,
    every: float | None = None,
    wait: float | None = None,
    tell: Tell | None = None,
    progress: Watch | None = None,
) -> int:
    """Run copies of a query in processes of their own and merge their answers, until everything is promised; returns
    how many elements the answer has.

    `queries` are one query several times, or several plans of it.  Inputs and `out` are as for `follow`; `place` is a
    folder for the copies' state.  Started again after it was killed, the same call goes on.  `policy`: what is said
    before it is final.  `tell` hears of copies that die.

    >>> import everwhen as ew
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> s = ew.source("S", {"x": "int64"})
    >>> query = s.aggregate(n=ew.count())
    >>> with TemporaryDirectory() as place:
    ...     text = '{"vs":1,"ve":5,"row":{"x":2}}\\\\n{"op":"cti","t":null}\\\\n'
    ...     _ = Path(place, "s.jsonl").write_text(text)
    ...     count = ew.copies([query, query], {"S": f"{place}/s.jsonl"}, f"{place}/out", place=f"{place}/copies")
    ...     print(*ew.History.of(ew.read_changelog(f"{place}/out")).coalesced().events())
    ...
    (1, 5, (1,))
    """
    level = consistency if emit is None else consistency.changed(emit=emit)
    nodes = [query.node if isinstance(query, Stream) else query for query in queries]
    options = {"batch": batch, "every": every, "wait": wait}
    members = _members(nodes, inputs, out, Path(place), level, policy, options)
    watch = progress or (lambda _: None)
    return _Supervisor(members, out, tell or (lambda _: None), watch).run()


def _members(
    nodes: Sequence[Node],
    inputs: Mapping[str, str | InputFile],
    out: str,
    place: Path,
    level: Consistency,
    policy: MergePolicy | None,
    options: dict[str, Any],
) -> list[_Member]:
    if not nodes:
        raise QueryError("there is no query to run")
    schema = nodes[0].schema
    found: list[_Member] = []
    for number, node in enumerate(nodes, 1):
        if node.schema != schema:
            raise QueryError(f"copy {number} has the columns {node.schema}, and copy 1 has {schema}")
        given = live_files(inputs, LocalRuntime(node, consistency=level), options["batch"])
        home = place.absolute() / f"copy-{number}"
        own = {**options, "keep": "unread", "reader": f"copy {number} of {place.absolute()}"}
        work = Work(node, given, str(home / "out"), str(home / "checkpoint"), level, own)
        found.append(_Member(f"copy {number}", work, explain(node)))
    names = {f"copy_{number}": str(place.absolute() / f"copy-{number}" / "out") for number in range(1, len(nodes) + 1)}
    merged = lmerge(*(source(name, schema) for name in names), policy=policy)
    folders = {name: InputFile(f"{folder}/", schema) for name, folder in names.items()}
    own = {**options, "reader": "merge", "wait": None, "every": 0.5 if options["every"] is None else options["every"]}
    work = Work(
        merged.node, folders, os.path.abspath(out), str(place.absolute() / "merge"), MIDDLE.emitting(level.emit), own
    )
    return [*found, _Member("merge", work)]


@dataclass
class _Member:
    """A copy, or the merge: its work, and the process that does it now."""

    name: str
    work: Work
    plan: str = ""
    process: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    again: float = 0.0
    pause: float = _FIRST_PAUSE
    done: bool = False

    @property
    def has_state(self) -> bool:
        """Whether it can go on where it was."""
        return is_changelog(self.work.out) and bool(states_in(Path(self.work.checkpoint)))

    def newest(self) -> float:
        """When its state was written; 0 if there is none."""
        times = [path.stat().st_mtime for path in Path(self.work.checkpoint).glob("state-*") if path.exists()]
        return max(times, default=0.0)


class _Supervisor:
    """Starts processes, and starts them again."""

    def __init__(self, members: Sequence[_Member], out: str, tell: Tell, watch: Watch) -> None:
        self.members, self.out, self.tell, self.watch = members, out, tell, watch
        self._spares: list[subprocess.Popen[bytes]] = []
        self._ending: list[subprocess.Popen[bytes]] = []
        self._begun = False

    def run(self) -> int:
        for member in self.members:
            _require_sendable(member)
        try:
            while not self.members[-1].done:
                now = time.monotonic()
                for member in self.members:
                    self._look_after(member, now)
                self._have_spare()
                self.watch(self._progress(now))
                time.sleep(_LOOK)
        finally:
            self._end_all()
        return self._said()

    # -- members ------------------------------------------------------------------------------------------------

    def _look_after(self, member: _Member, now: float) -> None:
        process = member.process
        if process is not None and process.poll() is not None:
            self._ended(member, process, now)
        if member.process is None and not member.done and now >= member.again:
            self._start(member, now)

    def _start(self, member: _Member, now: float) -> None:
        options = dict(member.work.options)
        if member.plan and not member.has_state and (seed := self._seed(member)) is not None:
            options["seed"] = seed
            self.tell(f"{member.name} has lost its state, and begins with that of {Path(seed).parent.name}")
        work = Work(**{**vars(member.work), "options": options})
        process = self._spares.pop() if self._spares else _spawn()
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it died while it waited; that is noticed in the next round
            send(work, process.stdin)
        member.process, member.since = process, now

    def _seed(self, member: _Member) -> str | None:
        """The newest state of another copy of the same plan."""
        others = [each for each in self.members if each.plan == member.plan and each is not member and each.newest()]
        return max(others, key=_Member.newest).work.checkpoint if others else None

    def _ended(self, member: _Member, process: subprocess.Popen[bytes], now: float) -> None:
        report = _report(process)
        member.process = None
        how, words = report.get("end", "died"), report.get("words", "")
        if how == "done":
            member.done = True
            return
        if how == "input":
            raise InputError(words)
        if how == "query":
            raise QueryError(words)
        if now - member.since > _STEADY:
            member.pause = _FIRST_PAUSE
        member.again = now + member.pause
        member.pause = min(2 * member.pause, _LONGEST_PAUSE)
        code = process.returncode
        why = words or (f"signal {-code}" if code < 0 else f"status {code}")
        self.tell(f"{member.name} (process {process.pid}) has died ({why}); it is started again")

    # -- processes ----------------------------------------------------------------------------------------------

    def _have_spare(self) -> None:
        """One process that waits for work; one that has died is replaced."""
        self._spares = [each for each in self._spares if each.poll() is None]
        if not self._spares and all(member.process is not None or member.done for member in self.members):
            self._spares.append(_spawn())

    def _end_all(self) -> None:
        """Ask all processes to end, then make them."""
        running = [member.process for member in self.members if member.process is not None] + self._spares
        for process in running:
            with suppress(ProcessLookupError, BrokenPipeError):
                process.terminate()
            with suppress(BrokenPipeError):
                assert process.stdin is not None
                process.stdin.close()
        until = time.monotonic() + _GRACE
        for process in running:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- looking ------------------------------------------------------------------------------------------------

    def _progress(self, now: float) -> Progress:
        alive = sum(member.process is not None for member in self.members[:-1])
        return Progress(f"{alive} of {len(self.members) - 1} copies", 0, 0, None)

    def _said(self) -> int:
        folder = open_folder(self.out)
        return int((read_manifest(folder, epochs_there(folder)[-1]).run or {})["said"])


def _spawn() -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(dict.fromkeys(path or os.getcwd() for path in sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", copy_process.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )


def _report(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """How a process says that it ended."""
    assert process.stdout is not None and process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    with process.stdout:
        lines = process.stdout.read().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _require_sendable(member: _Member) -> None:
    import pickle

    try:
        data = pickle.dumps(member.work)
    except (pickle.PicklingError, AttributeError, TypeError) as bad:
        raise QueryError(f"{member.name} cannot be sent to a process of its own: {bad}") from None
    if b"__main__" in data:
        raise QueryError(
            f"{member.name} uses a function of the main program, which another process cannot find; define it in a "
            "module"
        )
