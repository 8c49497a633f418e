"""The same query several times, in processes of their own, merged into one answer.

    <place>/copy-<i>/out          the answer of copy i, a changelog folder; what the merge has read is not kept
    <place>/copy-<i>/checkpoint   its state
    <place>/merge                 the state of the merge
    <out>                         the answer: what the copy says that was the first to promise an instant

A copy that dies is started again, and goes on.  If its state is gone it begins with the newest state of a copy of the
same plan.  Meanwhile the others go on, and nothing is missing: the merge follows whoever is ahead.  Copies may be
different plans of one query.  Each is run as it is written; they race.

Processes are forked from one that has loaded everything (`copy_process.py`), so one that dies is back at once.
Whoever keeps dying is started again after a while, which doubles.  A wrong element or a wrong query ends all.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from everwhen.algebra.builder import Stream, node_of
from everwhen.algebra.explain import explain
from everwhen.algebra.lmerge import lmerge
from everwhen.algebra.named_source import source
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.engine.files import copy_process
from everwhen.engine.files.axis import axis_of_inputs
from everwhen.engine.files.checkpoint import states_in
from everwhen.engine.files.copy_process import Work, send
from everwhen.engine.files.live.files import live_files
from everwhen.engine.files.run import Progress, Watch
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import InputError, QueryError
from everwhen.formats.changelog.layout import epochs_there, read_manifest
from everwhen.formats.input_file import InputFile, is_changelog
from everwhen.storage.folder import open_folder

Tell = Callable[[str], None]
_LOOK: Final = 0.02
_SHOW: Final = 1.0
_SOON: Final = 0.5
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_STEADY: Final = 2.0
"""Who has run for so many seconds is started again at once."""
_GRACE: Final = 5.0
"""Seconds in which all processes end, once they are asked to."""


def copies(
    queries: Sequence[Query],
    inputs: Mapping[str, str | InputFile],
    out: str,
    *,
    place: str,
    consistency: Consistency = MIDDLE,
    policy: MergePolicy | None = None,
    batch: int = 10_000,
    every: float | None = None,
    wait: float | None = None,
    keep: str = "all",
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
    ...     text = '{"vs":1,"ve":5,"row":{"x":2}}\\n{"op":"cti","t":null}\\n'
    ...     _ = Path(place, "s.jsonl").write_text(text)
    ...     count = ew.copies([query, query], {"S": f"{place}/s.jsonl"}, f"{place}/out", place=f"{place}/copies")
    ...     print(*ew.History.of(ew.read_changelog(f"{place}/out")).coalesced().events())
    ...
    (1, 5, (1,))
    """
    nodes = [node_of(query) for query in queries]
    options = {"batch": batch, "every": every, "wait": wait}
    members = _members(nodes, inputs, Path(place), consistency, options)
    axis = axis_of_inputs(queries[0], members[0].work.inputs)
    members.append(_merge(nodes[0], len(nodes), out, Path(place), axis, consistency, policy, {**options, "keep": keep}))
    watch = progress or (lambda _: None)
    return _Supervisor(members, out, tell or (lambda _: None), watch).run()


def _members(
    nodes: Sequence[Node],
    inputs: Mapping[str, str | InputFile],
    place: Path,
    level: Consistency,
    options: dict[str, Any],
) -> list[_Member]:
    """The copies."""
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
        plain = Stream(node, axis=TICKS)  # only the merge reads it
        work = Work(plain, given, str(home / "out"), str(home / "checkpoint"), level, own)
        found.append(_Member(f"copy {number}", work, explain(node)))
    return found


def _merge(
    node: Node,
    count: int,
    out: str,
    place: Path,
    axis: TimeAxis,
    level: Consistency,
    policy: MergePolicy | None,
    options: dict[str, Any],
) -> _Member:
    """What makes one answer of those of the copies.  Its state is saved often: nobody takes its place meanwhile."""
    names = {f"copy_{number}": place.absolute() / f"copy-{number}" / "out" for number in range(1, count + 1)}
    merged = lmerge(*(source(name, node.schema) for name in names), policy=policy)
    folders = {name: InputFile(f"{folder}/", node.schema) for name, folder in names.items()}
    every = _SOON if options["every"] is None else options["every"]
    own = {**options, "reader": "merge", "wait": None, "every": every}
    home = str(place.absolute() / "merge")
    query = Stream(merged.node, axis=axis)
    return _Member("merge", Work(query, folders, os.path.abspath(out), home, MIDDLE.emitting(level.emit), own))


@dataclass
class _Member:
    """A copy, or the merge: its work, and the process that does it now (0: it is being started)."""

    name: str
    work: Work
    plan: str = ""
    process: int | None = None
    since: float = 0.0
    again: float = 0.0
    pause: float = _FIRST_PAUSE
    end: tuple[str, str] = ("", "")
    done: bool = False

    @property
    def has_state(self) -> bool:
        """Whether it can go on where it was."""
        return is_changelog(self.work.out) and bool(states_in(Path(self.work.checkpoint)))

    def newest(self) -> float:
        """When its state was written; 0 if there is none."""
        found = 0.0
        for path in Path(self.work.checkpoint).glob("state-*"):
            with suppress(FileNotFoundError):
                found = max(found, path.stat().st_mtime)
        return found


class _Supervisor:
    """Has processes started, and started again."""

    def __init__(self, members: Sequence[_Member], out: str, tell: Tell, watch: Watch) -> None:
        self.members, self.out, self.tell, self.watch = members, out, tell, watch
        self._nursery: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._shown, self._read = time.monotonic(), 0

    def run(self) -> int:
        for member in self.members:
            _require_sendable(member)
        try:
            while not self.members[-1].done:
                now = time.monotonic()
                self._listen(now)
                for number, member in enumerate(self.members):
                    if member.process is None and not member.done and now >= member.again:
                        self._start(number, member, now)
                self.watch(self._progress(now))
                time.sleep(_LOOK)
        finally:
            self._end_all()
        return _told(self.out, "said")

    # -- members ------------------------------------------------------------------------------------------------

    def _start(self, number: int, member: _Member, now: float) -> None:
        options = dict(member.work.options)
        if member.plan and not member.has_state and (seed := self._seed(member)) is not None:
            options["seed"] = seed
            self.tell(f"{member.name} has no state, and begins with that of {Path(seed).parent.name}")
        if self._nursery is None:
            self._nursery = _spawn()
            assert self._nursery.stdout is not None
            os.set_blocking(self._nursery.stdout.fileno(), False)
        assert self._nursery.stdin is not None
        with suppress(BrokenPipeError):  # it has died, which is noticed next
            send(number, replace(member.work, options=options), self._nursery.stdin)
        member.process, member.since, member.end = 0, now, ("", "")

    def _seed(self, member: _Member) -> str | None:
        """The newest state of another copy of the same plan."""
        others = [each for each in self.members if each.plan == member.plan and each is not member and each.newest()]
        return max(others, key=_Member.newest).work.checkpoint if others else None

    def _listen(self, now: float) -> None:
        """What the nursery tells; if it has died, all have."""
        nursery = self._nursery
        if nursery is None:
            return
        assert nursery.stdout is not None
        died = nursery.poll() is not None
        self._heard += nursery.stdout.read() or b""
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            told = json.loads(line)
            member = self.members[told["member"]]
            if "pid" in told:
                member.process = told["pid"]
            elif "end" in told:
                member.end = (told["end"], told["words"])
            else:
                self._ended(member, told["exit"], now)
        if died:
            self._nursery, self._heard = None, b""
            self.tell("the process from which copies are started has died; all are started again")
            for member in self.members:
                member.process, member.again = None, now + _FIRST_PAUSE

    def _ended(self, member: _Member, status: int, now: float) -> None:
        pid, member.process = member.process, None
        how, words = member.end
        if how == "done":
            member.done = True
            return
        if how == "input":
            raise InputError(words)
        if how == "query":
            raise QueryError(words)
        if now - member.since > _STEADY:
            member.again, member.pause = now, _FIRST_PAUSE
        else:
            member.again = now + member.pause
            member.pause = min(2 * member.pause, _LONGEST_PAUSE)
        why = words or (f"signal {-status}" if status < 0 else f"status {status}")
        self.tell(f"{member.name} (process {pid}) has died ({why}); it is started again")

    def _end_all(self) -> None:
        """The nursery ends its processes when it hears no more."""
        nursery = self._nursery
        if nursery is None:
            return
        with suppress(BrokenPipeError):
            assert nursery.stdin is not None
            nursery.stdin.close()
        try:
            nursery.wait(_GRACE)
        except subprocess.TimeoutExpired:
            nursery.kill()
            nursery.wait()
        assert nursery.stdout is not None
        nursery.stdout.close()

    # -- looking ------------------------------------------------------------------------------------------------

    def _progress(self, now: float) -> Progress:
        copies = self.members[:-1]
        if now - self._shown >= _SHOW:
            self._shown = now
            self._read = max([self._read, *(_told(each.work.out, "read") for each in copies)])
        alive = sum(bool(member.process) for member in copies)
        return Progress(f"{alive} of {len(copies)} copies run", self._read)


def _told(out: str, what: str) -> int:
    """A number in the last manifest of a folder."""
    folder = open_folder(out)
    try:
        return int((read_manifest(folder, epochs_there(folder)[-1]).run or {})[what])
    except (FileNotFoundError, IndexError):
        return 0


def _spawn() -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(dict.fromkeys(path or os.getcwd() for path in sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", copy_process.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )


def _require_sendable(member: _Member) -> None:
    try:
        data = pickle.dumps(member.work)
    except (pickle.PicklingError, AttributeError, TypeError) as bad:
        raise QueryError(f"{member.name} cannot be sent to a process of its own: {bad}") from None
    if b"__main__" in data:
        raise QueryError(
            f"{member.name} uses a function of the main program, which another process cannot find; define it in a "
            "module"
        )
