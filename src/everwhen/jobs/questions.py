"""Questions to a running job: who asks leaves a file at its checkpoint, and the job answers with another one.

    <dir>/question.json    who is asked, what (waiting, analyze), and a number
    <dir>/answer.json      the number, and the answer as text and as data, or why there is none

The job looks for questions as often as for the request to stop.  It answers between two epochs, and goes on.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from everwhen.errors import EverwhenError, StateError
from everwhen.storage.atomic_file import whole_file
from everwhen.storage.lease import Holder

QUESTION: Final = "question.json"
ANSWER: Final = "answer.json"
WORDS: Final = ("waiting", "analyze")
Tell = Callable[[str], Sequence[tuple[str, Any]]]
"""What a job tells to one of the words, of each of its queries: as text and as plain data."""


def ask(place: Path, holder: Holder, words: Sequence[str], patience: float = 60.0) -> dict[str, Any]:
    """What a running job answers: by word, a list of texts and a list of data; StateError if it does not answer."""
    number = uuid.uuid4().hex
    with whole_file(place / QUESTION) as aside:
        aside.write_text(json.dumps({"holder": holder.id, "words": list(words), "number": number}), encoding="utf-8")
    until = time.monotonic() + patience
    while time.monotonic() < until:
        found = _read(place / ANSWER)
        if found.get("number") == number:
            if found.get("error"):
                raise StateError(str(found["error"]))
            return dict(found["told"])
        time.sleep(0.05)
    raise StateError(f"{holder} has not answered within {patience:g} seconds; it may be in a long epoch: ask again")


def answer(place: Path, holder: Holder, tell: Tell) -> bool:
    """Answer to a question, if there is one for this run; whether there was."""
    if not (place / QUESTION).exists():
        return False
    asked = _read(place / QUESTION)
    (place / QUESTION).unlink(missing_ok=True)
    if asked.get("holder") != holder.id:
        return False
    reply: dict[str, Any] = {"number": asked["number"]}
    try:
        told = {word: tell(word) for word in asked["words"] if word in WORDS}
        reply["told"] = {
            word: {"text": [text for text, _ in each], "data": [data for _, data in each]}
            for word, each in told.items()
        }
    except EverwhenError as bad:
        reply["error"] = str(bad)
    with whole_file(place / ANSWER) as aside:
        aside.write_text(json.dumps(reply, ensure_ascii=False), encoding="utf-8")
    return True


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
