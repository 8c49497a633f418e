"""The shell's commands: a table of names, each with its words of help and what it does.

A command may be shortened as long as it is clear which is meant: `\\q` is `\\quit`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from everwhen.core.replay import Replay
from everwhen.demo.nexmark import STREAMS
from everwhen.demo.nexmark.texts import DECLARATIONS
from everwhen.errors import QueryError
from everwhen.shell.run import run_live, run_plain
from everwhen.shell.view import query_table, state_table, stream_table, table

if TYPE_CHECKING:
    from everwhen.shell.session import Shell


@dataclass(frozen=True, slots=True)
class Order:
    """A command as it was given: `words` are its arguments, `rest` the same as one text."""

    name: str
    words: tuple[str, ...]
    rest: str

    def only(self, usage: str) -> str:
        """The one argument there is."""
        if len(self.words) != 1:
            raise QueryError(f"write {usage}")
        return self.words[0]


@dataclass(frozen=True, slots=True)
class ShellCommand:
    usage: str
    help: str
    run: Callable[[Shell, Order], None]


def order_of(text: str) -> Order:
    """A line as a command; a name that is not clear is a QueryError."""
    name, _, rest = text.strip().lstrip("\\").partition(" ")
    rest = rest.strip().rstrip(";").strip()
    wanted = name.rstrip(";").lower()
    found = [wanted] if wanted in COMMANDS else [each for each in COMMANDS if wanted and each.startswith(wanted)]
    if len(found) > 1:
        raise QueryError(f"\\{name} may be any of {', '.join(found)}")
    if not found:
        near = difflib.get_close_matches(wanted, COMMANDS, n=1)
        hint = f"did you mean \\{near[0]}?" if near else "\\help lists the commands"
        raise QueryError(f"there is no command \\{name}; {hint}")
    return Order(found[0], tuple(rest.split()), rest)


def _help(shell: Shell, order: Order) -> None:
    shell.say("Statements end with ;  They are SELECT, CREATE STREAM, CREATE … RELATION, DROP, ALTER QUERY, EXPLAIN.")
    rows = [(f"\\{command.usage}", command.help) for command in COMMANDS.values()]
    shell.say("", *table(("command", "what it does"), rows, shell.width))


def _streams(shell: Shell, order: Order) -> None:
    catalog = shell.session.catalog
    known = [(stream, shell.feeds.shown(stream.name, catalog)) for stream in shell.session.streams()]
    unread = [name for name in shell.feeds.files if catalog.stream(name) is None]
    if known:
        shell.say(*stream_table(known, shell.width))
    elif not unread:
        shell.say("no stream is declared: CREATE STREAM …, \\open NAME FILE, or \\nexmark")
    shell.say(*(f"{name} will take its columns from {shell.feeds.files[name]}" for name in unread))


def _queries(shell: Shell, order: Order) -> None:
    queries = shell.session.queries()
    shell.say(*(query_table(queries, shell.width) if queries else ["no query yet: SELECT … ;"]))


def _start(shell: Shell, order: Order) -> None:
    shell.note(shell.session.start(order.only("\\start NAME, of a query that has stopped")))


def _stop(shell: Shell, order: Order) -> None:
    name = order.only("\\stop NAME; \\queries lists them")
    shell.session.stop(name)
    shell.feeds.release(shell.session)
    shell.say(f"stopped {name}")


def _remove(shell: Shell, order: Order) -> None:
    name = order.only("\\remove NAME; \\queries lists them")
    shell.session.remove(name)
    shell.feeds.release(shell.session)
    del shell.answers[name]
    shell.latest = None if shell.latest == name else shell.latest
    shell.say(f"removed {name}")


def _explain(shell: Shell, order: Order) -> None:
    if not order.rest:
        raise QueryError("write \\explain with a query's name, a stream's name, or a SELECT")
    shell.say(shell.session.explain(order.rest))


def _open(shell: Shell, order: Order) -> None:
    if len(order.words) < 2:
        raise QueryError("write \\open NAME FILE, such as \\open Bid bids.jsonl")
    name = order.words[0]
    entry = shell.session.catalog.stream(name)
    if entry is not None:
        if entry.reads or entry.declaration is None:
            raise QueryError(f"{entry.name} is a derived stream; open what it is made from")
        name = entry.name
    is_read = name in shell.session.inputs
    if is_read and shell.feeds.shown(name, shell.session.catalog):
        raise QueryError(f"{name} is being read; stop its queries first, for it would begin anew")
    shell.feeds.attach(name, order.rest.split(maxsplit=1)[1])
    if not is_read:  # where a query waits for it, nothing of it has come yet
        shell.session.forget(name)
    shell.say(f"{name} comes from {shell.feeds.files[name]}")


def _nexmark(shell: Shell, order: Order) -> None:
    read = [name for name in STREAMS if name in shell.session.inputs]
    if read:
        raise QueryError(f"{', '.join(read)} is being read; stop its queries first, for it would begin anew")
    settings: dict[str, str] = {}
    for word in order.words:
        name, equals, value = word.partition("=")
        if not equals:
            raise QueryError(f"a setting is NAME=VALUE, such as rate=1000, not {word!r}")
        settings[name] = value
    known = [name for name in STREAMS if shell.session.catalog.stream(name) is not None]
    if known and len(known) < len(STREAMS):
        raise QueryError(f"there is {', '.join(known)} already; drop it first")
    shell.feeds.generate(settings)
    for name in STREAMS:
        shell.session.forget(name)
    for outcome in [] if known else shell.session.execute(DECLARATIONS):
        shell.say(str(outcome))
    shell.say("they come from the NEXMark generator; \\step and \\run let them move")


def _step(shell: Shell, order: Order) -> None:
    count = order.words[0] if order.words else "1"
    if len(order.words) > 1 or not count.isdecimal() or not int(count):
        raise QueryError("write \\step, or \\step N for N epochs")
    shell.require_data()
    done = 0
    with shell.interruptible() as is_asked:
        while done < int(count) and not is_asked() and (pushed := shell.epoch()) is not None:
            done += 1
            shell.say_changes(pushed[1])
    if not done and not is_asked():
        shell.say("all that is read has ended")


def _run(shell: Shell, order: Order) -> None:
    paced = dict(word.lower().split("=", 1) for word in order.words if "=" in word)
    if paced.keys() - {"rate", "speed"} or not all(map(_is_number, paced.values())):
        raise QueryError("a replay is rate=ELEMENTS a second, or speed=SECONDS of the data a second, such as speed=60")
    replay = Replay(**{name: float(value) for name, value in paced.items()})
    words = [word for word in order.words if word.lower() not in ("until", "end") and "=" not in word]
    seconds = next((float(word) for word in words if _is_number(word)), None)
    names = [word for word in words if not _is_number(word)]
    if len(names) > 1 or len(words) - len(names) > 1:
        raise QueryError("write \\run [QUERY] [SECONDS | until end] [rate=N | speed=X]")
    shell.require_data()
    name = shell.session.query(names[0]).name if names else shell.latest
    if shell.is_live and name is not None:
        run_live(shell, name, seconds, replay)
        return
    if shell.feeds.is_endless and seconds is None:
        raise QueryError("NEXMark has no end: write \\run SECONDS or \\step N, or \\nexmark events=N")
    run_plain(shell, seconds, replay)


def _is_number(word: str) -> bool:
    return word.replace(".", "", 1).isdecimal()


def _show(shell: Shell, order: Order) -> None:
    if len(order.words) > 1:
        raise QueryError("write \\show NAME; \\queries lists them")
    name = order.words[0] if order.words else shell.latest
    if name is None:
        raise QueryError("no query yet: SELECT … ;")
    shell.show(name)


def _state(shell: Shell, order: Order) -> None:
    parts = list(shell.session.metadata().values())
    shell.say(*(state_table(parts, shell.width) if parts else ["nothing is running"]))


def _waiting(shell: Shell, order: Order) -> None:
    if len(order.words) > 1:
        raise QueryError("write \\waiting NAME; \\queries lists them")
    running = [query.name for query in shell.session.queries() if query.state == "running"]
    names = list(order.words) or running
    if not names:
        raise QueryError("no query is running: SELECT … ;")
    for name in names:
        shell.say(*shell.session.waiting(name).lines())


def _quit(shell: Shell, order: Order) -> None:
    shell.is_over = True


COMMANDS: Final = MappingProxyType(
    {
        "help": ShellCommand("help", "this list", _help),
        "streams": ShellCommand("streams", "the streams: columns, where they come from, who reads them", _streams),
        "queries": ShellCommand("queries", "the queries: state, from which instant on they are right", _queries),
        "open": ShellCommand("open NAME FILE", "let a stream come from a file (JSON lines, .parquet, .csv)", _open),
        "nexmark": ShellCommand("nexmark [rate=N …]", "declare the NEXMark streams, fed by the generator", _nexmark),
        "step": ShellCommand("step [N]", "push one epoch, or N, and show what the queries say", _step),
        "run": ShellCommand(
            "run [QUERY] [SECONDS] [speed=X]",
            "push epochs and show the answer as it changes; rate=N, speed=X: slowly",
            _run,
        ),
        "show": ShellCommand("show [QUERY]", "the answer now", _show),
        "state": ShellCommand("state", "what every operator has done and keeps", _state),
        "waiting": ShellCommand("waiting [QUERY]", "why nothing comes out: who holds it back, the remedy", _waiting),
        "explain": ShellCommand("explain QUERY", "the plan of a query, a stream or a SELECT, and why", _explain),
        "stop": ShellCommand("stop QUERY", "stop a query", _stop),
        "start": ShellCommand("start QUERY", "start a stopped query again", _start),
        "remove": ShellCommand("remove QUERY", "stop a query and forget it", _remove),
        "quit": ShellCommand("quit", "leave (also Ctrl-D)", _quit),
    }
)
