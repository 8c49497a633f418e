"""Runs of the shell: epochs pushed one after the other, with the answer shown as it changes.

At a terminal it is a picture that is drawn anew a few times a second and gone in the end; elsewhere every change is a
line.  Both end at the end of the data, after so many seconds, or between two epochs when Ctrl-C is pressed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from everwhen.core.replay import Replay, ReplayClock
from everwhen.core.time import NEVER
from everwhen.shell.view import InputView, LiveView, number, picture

if TYPE_CHECKING:
    from everwhen.shell.session import Shell

_FRAME: Final = 0.1
_EFFORT: Final = 5
"""So many times as long as drawing took is the time to the next picture, so that it takes little of the run."""


def run_plain(shell: Shell, seconds: float | None, replay: Replay) -> None:
    """Every change as a line."""
    began, elements = shell.clock(), 0
    pace = _pace(shell, replay)
    with shell.interruptible() as is_asked, shell.feeds.in_steps(replay.steps(shell.feeds.batch)):

        def is_over() -> bool:
            return is_asked() or (seconds is not None and shell.clock() - began >= seconds)

        while not is_over():
            pushed = shell.epoch()
            if pushed is None:
                return
            elements += sum(map(len, pushed[0].batches.values()))
            shell.say_changes(pushed[1])
            pace.wait(elements, max(shell.feeds.tau.values(), default=NEVER), is_over)


def _pace(shell: Shell, replay: Replay) -> ReplayClock:
    return ReplayClock(replay, shell.axis.tick, shell.clock, time.sleep)


def run_live(shell: Shell, query: str, seconds: float | None, replay: Replay) -> None:
    """The picture of one query, then its answer."""
    from rich.console import Console  # only a terminal pays for it
    from rich.live import Live

    console = Console()
    began = shell.clock()
    due = began
    epochs = elements = 0
    why = ""

    def draw(live: Live) -> None:
        spent = shell.clock() - began
        view = _view(shell, query, epochs, elements, spent)
        live.update(picture(view, console.width, console.height), refresh=True)

    pace = _pace(shell, replay)
    with (
        shell.interruptible() as is_asked,
        shell.feeds.in_steps(replay.steps(shell.feeds.batch)),
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):

        def is_over() -> bool:
            return is_asked() or (seconds is not None and shell.clock() - began >= seconds)

        while not why:
            pushed = shell.epoch()
            now = shell.clock()
            if pushed is None:
                why = "all that is read has ended"
            else:
                epochs += 1
                elements += sum(map(len, pushed[0].batches.values()))
            if is_asked():
                why = "stopped"
            elif seconds is not None and now - began >= seconds:
                why = "time is up"
            if now >= due:
                draw(live)
                drawn = shell.clock()
                due = drawn + max(_FRAME, _EFFORT * (drawn - now))
            if not why:
                pace.wait(elements, max(shell.feeds.tau.values(), default=NEVER), is_over)
    spent = max(shell.clock() - began, 1e-9)
    shell.show(query)
    shell.say_given_up()
    shell.say(
        f"{why}: {number(epochs, 'epoch')}, {number(elements, 'element')} in {spent:.1f} s, "
        f"{elements / spent:,.0f} per second"
    )


def _view(shell: Shell, query: str, epochs: int, elements: int, spent: float) -> LiveView:
    asked, answer, feeds = shell.session.query(query), shell.answers[query], shell.feeds
    progress = shell.session.progress
    inputs = [
        InputView(name, feeds.taken.get(name, 0), progress.get(name, NEVER), name in feeds.ended)
        for name in asked.sources
    ]
    running = sum(each.state == "running" for each in shell.session.queries())
    return LiveView(
        query,
        asked.text,
        answer.schema.names,
        answer.rows(),
        tuple(answer.changes),
        answer.now,
        answer.final,
        inputs,
        epochs,
        elements,
        elements / max(spent, 1e-9),
        spent,
        max(running - 1, 0),
    )
