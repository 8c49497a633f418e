"""What the driver has decided and learnt, epoch by epoch, so that an epoch that is run again is the same epoch.

    <checkpoint>/everwhen/query.json           what is run: the id of its state, its plan, its partitions
    <checkpoint>/everwhen/epochs/<n>.begun     what was decided before epoch n: the time, idle sources, the level,
                                               copies of merges that have left, and a digest of the offsets that Spark
                                               has planned for it
    <checkpoint>/everwhen/epochs/<n>.done      what was known after it: promises of sources and queries, last rows seen,
                                               how many rows each source had so far, and how many of them late
    <checkpoint>/spark/offsets/<n>             Spark's own plan of epoch n; here it is only read

`begun` is published once, `done` before any sink takes the epoch.  So an epoch that has begun and is not done has left
no trace outside, and is taken back when it is run again: its input may have been repaired meanwhile.

An epoch that is done stays as it is.  If Spark comes with other offsets for it, then Spark's part of the checkpoint is
older than this one (a backup, say): Spark has planned the epoch anew, with other rows, and to take the epoch for done
would lose them.  This is refused.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from everwhen.errors import QueryError, SinkError, SinkLostError, StateError
from everwhen.sinks.base import EpochSink
from everwhen.storage.folder import Folder, blame, open_folder
from everwhen.storage.state_format import software

FORMAT: Final = 2
"""1: up to Everwhen 0.4, where states were pickles."""
_KEPT: Final = 100
"""How many epochs' files stay to be looked at."""


@dataclass(frozen=True)
class EpochState:
    """What is known after an epoch: what each source and each query has promised, when each source last had rows.

    `said` is what single partitions have promised about the data of an answer, by query: partition, pattern, time.
    `rows` and `late` count the rows of each source since the query was first started, and those that came too late.
    `tau` is the largest start seen (None: an older version has not noted it), `ends` the largest end that each query
    has said.  `steps`: of each loop whose rounds cross exchanges the first step of the epoch, and the first one of the
    next.
    """

    sources: Mapping[str, int] = field(default_factory=dict)
    queries: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)
    said: Mapping[str, Sequence[tuple[int, Mapping[str, Any], int]]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    tau: int | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochDecision:
    """What is decided before an epoch: the sources that are idle, the time of the clock, the level; and of copies that
    are merged which have ended, which are detached, and which begin anew, right from a time on.  `numbers`: how often
    each has done so by then.  `until`: those that leave at an instant."""

    idle: frozenset[str]
    now: float
    level: Mapping[str, Any]
    ended: frozenset[str] = frozenset()
    detached: frozenset[str] = frozenset()
    anew: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"idle": sorted(self.idle), "now": self.now, "level": self.level}
        plain |= {"ended": sorted(self.ended), "detached": sorted(self.detached)}
        return plain | {"anew": dict(self.anew), "numbers": dict(self.numbers), "until": dict(self.until)}


@dataclass(frozen=True)
class Identity:
    """What a query has state of: the text of its plan, its partitions, its policy.  `asked` is the text of the query as
    it was asked, of which the plan is one form; `stored` the plan as data, if it can be stored."""

    plan: str
    buckets: int
    emit: str
    asked: str = field(default="", compare=False)
    stored: str | None = field(default=None, compare=False)


class EpochLog:
    """The driver's files in a checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        try:
            whole = open_folder(checkpoint)
            self._folder: Folder = whole.within("everwhen")
            self._offsets: Folder = whole.within("spark").within("offsets")
            self._folder.make()
        except OSError as bad:
            raise StateError(blame(bad, checkpoint, "use it as a checkpoint")) from None
        self.checkpoint = checkpoint
        self.folder = self._folder
        self.place = self._folder.place()
        self.state_root = self._folder.place("state")

    def open(self, identity: Identity, check: bool = True) -> str:
        """The id of the query's state: a new one, or that of the query whose checkpoint this is, if it is the same.
        Without `check` its plan and partitions may be others: it has been replaced."""
        try:
            if not self._folder.exists("query.json"):
                head = {"format": FORMAT, "software": software(), "id": uuid.uuid4().hex}
                self._folder.create("query.json", [json.dumps(head | asdict(identity), indent=1).encode()])
            found = json.loads(self._folder.read("query.json"))
            if found["format"] != FORMAT:
                raise other_version(found, self.place)
            before = Identity(found["plan"], found["buckets"], found["emit"])
        except OSError as bad:
            raise StateError(blame(bad, self._folder.place("query.json"), "read or write it")) from None
        except (ValueError, KeyError, TypeError, RecursionError) as bad:
            what = f"there is no {bad}" if isinstance(bad, KeyError) else str(bad)
            raise StateError(
                f"{self._folder.place('query.json')} is damaged: {what}; restore the file, or start the query with a "
                "new checkpoint"
            ) from None
        if not check:
            before = replace(before, plan=identity.plan, buckets=identity.buckets)
        if before != identity:
            raise QueryError(difference(before, identity, self.place))
        return str(found["id"])

    def renew(self, identity: Identity) -> None:
        """Let the checkpoint be that of another plan, as long as no epoch is done: nothing of the old one is needed."""
        try:
            found = json.loads(self._folder.read("query.json"))
            self._folder.replace("query.json", [json.dumps(found | asdict(identity), indent=1).encode()], durable=True)
        except OSError as bad:
            raise StateError(blame(bad, self._folder.place("query.json"), "write it")) from None

    def holds(self, identity: Identity) -> bool:
        """Whether this is the checkpoint of a query, or of none yet."""
        if not self._folder.exists("query.json"):
            return True
        try:
            self.open(identity)
            return True
        except QueryError:
            return False

    def begun(
        self, epoch: int, decided: EpochDecision, steps: Mapping[int, int] = MappingProxyType({})
    ) -> EpochDecision:
        """What holds for an epoch: as decided now, or when it was first run.  An epoch that is done and for which Spark
        has planned other offsets since is refused.  `steps`: of stages on loops, the first step of the epoch."""
        name = f"epochs/{epoch:012d}.begun"
        offsets = self._planned(epoch)
        text = decided.to_plain() | {"offsets": offsets}
        with self._explained(name, "write what was decided for the epoch"):
            if self._folder.create(name, [json.dumps(text).encode()]):
                return decided
        found = self._read(name, "idle", "now", "level", offsets=None, **_COPIES)
        if not self.has(epoch):
            with self._explained(name, "write what was decided for the epoch"):
                self._withdraw(epoch, steps)
                if found["offsets"] != offsets:  # it left no trace, so what Spark plans now is the epoch
                    self._folder.replace(name, [json.dumps(found | {"offsets": offsets}).encode()])
        return _decision(found)

    def check_plan(self, epoch: int) -> None:
        """Refuse an epoch that is done and that Spark has planned anew since."""
        name = f"epochs/{epoch:012d}.begun"
        if not self.has(epoch) or not self._folder.exists(name):
            return
        before, now = self._read(name, offsets=None)["offsets"], self._planned(epoch)
        if before is not None and now is not None and before != now:
            raise StateError(
                f"the checkpoint {self.checkpoint}: epoch {epoch} is done already, and Spark has planned it anew with "
                f"other offsets ({self._offsets.place(str(epoch))}): Spark's part of the checkpoint is an older copy "
                "than the rest, and the rows that the epoch has now would be lost. Nothing was written. Restore the "
                "whole checkpoint, and the sinks with it, from one backup; or start with a new checkpoint and new sinks"
            )

    def _planned(self, epoch: int) -> str | None:
        """A digest of what Spark has planned for an epoch; None if that cannot be read."""
        try:
            return hashlib.blake2b(self._offsets.read(str(epoch)), digest_size=16).hexdigest()
        except OSError:
            return None

    def decision(self) -> EpochDecision | None:
        """What was decided for the newest epoch that has begun; None if none has."""
        with self._explained("epochs", "list the epochs"):
            names = [entry.name for entry in self._folder.within("epochs").entries()]
        begun = max((name for name in names if name.endswith(".begun")), default=None)
        return None if begun is None else _decision(self._read(f"epochs/{begun}", "idle", "now", "level", **_COPIES))

    def planned(self) -> int:
        """The last epoch that Spark has planned; -1 if there is none."""
        with self._explained("epochs", "list what Spark has planned"):
            names = [entry.name for entry in self._offsets.entries()]
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def folder_starts(self, epoch: int) -> list[str] | None:
        """Which starts of changelog folders Spark reads in an epoch, in the order of its sources; None if that cannot
        be read."""
        try:
            lines = self._offsets.read(str(epoch)).decode().splitlines()[2:]
            found = [json.loads(line) if line.startswith("{") else None for line in lines]
        except (OSError, ValueError, RecursionError):
            return None
        return [str(each["start"]) if isinstance(each, dict) and "start" in each else "" for each in found]

    def _withdraw(self, epoch: int, steps: Mapping[int, int]) -> None:
        """Take back what the tasks of an epoch have published that was not done: all of it, or its partitions
        would take the epoch's input at different times."""
        first = {f"stage={level}": step for level, step in steps.items()}
        for plan in self.state_folders():
            state = self._folder.within(plan)
            for stage in state.folders():
                for partition in state.within(stage).folders():
                    folder = state.within(stage).within(partition)
                    for name in [entry.name for entry in folder.entries()]:
                        kind, _, version = name.partition("-")
                        if kind not in ("snapshot", "log") or not version.isdecimal():
                            continue
                        if int(version) >= first[stage] if stage in first else int(version) == epoch:
                            folder.remove(name)

    def state_folders(self) -> list[str]:
        """The folders with the state of plans: one, or several while a query is being replaced."""
        return [name for name in self._folder.folders() if name == "state" or name.startswith("state-")]

    def drop_state(self, plan: str) -> None:
        """Delete the state of a plan that has been replaced."""
        with self._explained(plan, "delete the state of a plan that has been replaced"):
            state = self._folder.within(plan)
            for stage in state.folders():
                for partition in state.within(stage).folders():
                    mine = state.within(stage).within(partition)
                    for entry in mine.entries():
                        mine.remove(entry.name)
                    state.within(stage).remove_empty(partition)
                state.remove_empty(stage)
            self._folder.remove_empty(plan)

    def done(self, epoch: int, known: EpochState) -> None:
        """Remember what is known after an epoch."""
        name = f"epochs/{epoch:012d}.done"
        with self._explained(name, "write what is known of the epoch"):
            self._folder.replace(name, [json.dumps(asdict(known)).encode()])
            if epoch >= _KEPT:
                for ending in ("begun", "done"):
                    self._folder.remove(f"epochs/{epoch - _KEPT:012d}.{ending}")

    def known(self, epoch: int) -> EpochState:
        """What was known after an epoch."""
        if epoch < 0:
            return EpochState()
        newer: dict[str, Any] = {"rows": {}, "late": {}, "tau": None, "ends": {}, "steps": {}}
        found = self._read(f"epochs/{epoch:012d}.done", "sources", "queries", "seen", "said", **newer)
        return EpochState(**found)

    def has_begun(self, epoch: int) -> bool:
        return self._folder.exists(f"epochs/{epoch:012d}.begun")

    def has(self, epoch: int) -> bool:
        return self._folder.exists(f"epochs/{epoch:012d}.done")

    def newest(self) -> int:
        """The last epoch that is done; -1 if there is none."""
        with self._explained("epochs", "list the epochs"):
            names = [entry.name for entry in self._folder.within("epochs").entries()]
        return max((int(name.removesuffix(".done")) for name in names if name.endswith(".done")), default=-1)

    def _read(self, name: str, *keys: str, **others: Any) -> dict[str, Any]:
        """What stands in a file: of `keys` all, of `others` those that an older version has not written as given."""
        with self._explained(name, "read what is known of the epoch"):
            text = self._folder.read(name)
        try:
            found = json.loads(text)
            return {key: found[key] for key in keys} | {key: found.get(key, none) for key, none in others.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as bad:
            what = f"there is no {bad}" if isinstance(bad, KeyError) else str(bad)
            raise StateError(
                f"{self._folder.place(name)} is damaged: {what}; restore the file, or start with a new checkpoint"
            ) from None

    @contextmanager
    def _explained(self, name: str, wanted: str) -> Iterator[None]:
        try:
            yield
        except OSError as bad:
            raise StateError(blame(bad, self._folder.place(name), wanted)) from None


def other_version(found: Mapping[str, Any], place: str) -> StateError:
    """The error of a checkpoint that another version wrote."""
    older = "Everwhen 0.4 or an older version" if found["format"] == 1 else "another version"
    writer = str(found.get("software", older))[:60]
    return StateError(
        f"the checkpoint {place} was written by {writer}, in format {str(found['format'])[:20]}; this is "
        f"{software()}, which reads format {FORMAT} only. Go on with the version that wrote it, or start the "
        "query with a new checkpoint."
    )


_COPIES: Final[Mapping[str, Any]] = {"ended": [], "detached": [], "anew": {}, "numbers": {}, "until": {}}


def _decision(found: Mapping[str, Any]) -> EpochDecision:
    idle, ended, detached = (frozenset(found[name]) for name in ("idle", "ended", "detached"))
    rest = (found[name] for name in ("anew", "numbers", "until"))
    return EpochDecision(idle, found["now"], found["level"], ended, detached, *rest)


# -- whether Spark's checkpoint, this log and the sinks fit together ---------------------------------------------------
#
# Each knows the epochs that it has.  They may differ by the one epoch that was under way; by more only if somebody has
# deleted a part, or has restored an older copy of it.


def check_sink(name: str, sink: EpochSink, journal: EpochLog) -> None:
    """A sink and a checkpoint belong together: the sink has the epochs that are done, all but perhaps the last.

    Else it would take an epoch for one that it has, or lack the events that later ones adjust."""
    done, taken = journal.newest(), sink.committed()
    forgets = not sink.lasting and taken == -1  # what a process holds goes with it
    if taken not in (done - 1, done) and not forgets:
        has = f"epochs up to {taken}" if taken >= 0 else "no epochs"
        raise SinkError(
            f"the sink of {name!r} has {has}, and the checkpoint {journal.place} has "
            f"{f'epochs up to {done}' if done >= 0 else 'none'}: they do not belong together; use the sink that was "
            "written with this checkpoint, or a new checkpoint and a new sink"
        )


def check_first_epoch(epoch: int, journal: EpochLog, sinks: Mapping[str, EpochSink]) -> None:
    """The first epoch of a run is the last one that was done, or the one after; and the sinks have all before it."""
    newest = journal.newest()
    if epoch < newest:
        raise StateError(
            f"{journal.place}: Spark begins with epoch {epoch}, and epoch {newest} is done already: Spark's "
            "part of the checkpoint was deleted or is an older copy; restore it, or start with a new checkpoint "
            "and new sinks"
        )
    if epoch > newest + 1:
        raise StateError(
            f"{journal.place}: Spark begins with epoch {epoch}, and the last one that is done here is {newest}: this "
            "part of the checkpoint was deleted or is an older copy than Spark's; restore the whole checkpoint from "
            "one backup, or start with a new checkpoint and new sinks"
        )
    for name, sink in sinks.items():
        taken = sink.committed()
        if taken < epoch - 1 and (sink.lasting or taken >= 0):
            raise SinkLostError(
                f"the sink of {name!r} has {f'epochs up to {taken}' if taken >= 0 else 'no epochs'}, and Spark begins "
                f"with epoch {epoch}: the sink has lost what lies between; restore it from a backup, or start with a "
                "new checkpoint and a new sink"
            )


def difference(before: Identity, now: Identity, place: str) -> str:
    """What has changed, line by line."""
    lines = []
    if before.buckets != now.buckets:
        lines.append(f"  buckets: {before.buckets} before, {now.buckets} now")
    if before.emit != now.emit:
        lines.append(f"  emit: {before.emit} before, {now.emit} now")
    for line in difflib.ndiff(before.plan.splitlines(), now.plan.splitlines()):
        if line.startswith(("- ", "+ ")):
            lines.append(f"  {'before' if line[0] == '-' else 'now   '}: {line[2:]}")
    changes = "\n".join(lines)
    other = "" if before.plan == now.plan or before.emit != now.emit else ", or let it take over (migrate=True)"
    return (
        f"the checkpoint {place} holds the state of another query, which this one cannot go on from:\n{changes}\n"
        f"Start the changed query with a new checkpoint, or run it as it was{other}."
    )
