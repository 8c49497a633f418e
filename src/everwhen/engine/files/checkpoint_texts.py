"""Whose checkpoint it is, by the texts of its queries: the present one, and the one before.

    <dir>/query.json   the query as it was asked, its text, and those of the query from which it took over

The texts are written before `run.json` tells whose checkpoint it is.  So after a crash the query of the state is among
them, whichever it is of.  Only who asks for it goes on from the checkpoint of another query; whatever else is different
is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everwhen.algebra.explain import explain
from everwhen.engine.files.checkpoint import agree, belongs_to, note_run, write_json
from everwhen.engine.files.query_forms import QueryForms
from everwhen.errors import QueryError, StateError

_NAME: Final = "query.json"


def stored_texts(place: str | Path, needed: bool = True) -> list[str]:
    """The texts of the queries of a checkpoint, the present one first; those that have none are left out.  StateError:
    they are `needed`, and cannot be read."""
    found = _stored(Path(place), needed)
    return [each["text"] for each in (found, found.get("before")) if each and each["text"]]


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose checkpoint may be gone on from: this query's, by its identity, and with `migrate` that of another one whose
    text it has."""

    forms: QueryForms
    identity: Mapping[str, str]
    others: Sequence[tuple[QueryForms, Mapping[str, str]]] = ()
    migrate: bool = False

    def owner(self, place: Path) -> QueryForms:
        """Whose checkpoint it is; this query's, if it is none of those that are known."""
        found = (forms for forms, identity in self.others if belongs_to(place, identity))
        return self.forms if belongs_to(place, self.identity) else next(found, self.forms)

    def goes_over(self, place: Path) -> bool:
        """Whether it is the checkpoint of another query."""
        return self.owner(place) is not self.forms

    def require(self, place: Path) -> None:
        """QueryError unless it may be gone on from; a new checkpoint becomes this query's.  StateError: it is another
        query's, whose text is not there."""
        if self.migrate and self.goes_over(place):
            self._require_columns(place, self.owner(place))
        elif agree(place, self.identity, ("query",) if self.migrate else ()):
            problem = "does not have the text of its query" if (place / _NAME).exists() else "is missing"
            raise StateError(
                f"{place / _NAME} {problem}, without which no other one can go on from it; restore it, or take a new "
                "directory"
            )

    def begin(self, place: Path) -> None:
        """The same, and the text is noted; of a new checkpoint before it is told whose it is."""
        found, mine = _stored(place, self.migrate), _told(self.forms)
        is_new = not (place / "run.json").exists()
        if not is_new:
            self.require(place)
        if not self.goes_over(place) and found.get("text") != self.forms.text:
            last = {each: found[each] for each in mine} if found else None
            is_mine = last is None or last["query"] == mine["query"]
            _note(place, {**mine, "before": found.get("before") if is_mine else last})
        if is_new:
            self.require(place)

    def confirm(self, place: Path) -> None:
        """The query has taken over: the checkpoint is its own from now on."""
        if self.goes_over(place):
            _note(place, {**_told(self.forms), "before": _told(self.owner(place))})
            note_run(place, self.identity)

    def _require_columns(self, place: Path, owner: QueryForms) -> None:
        if owner.asked.schema != self.forms.asked.schema:
            raise QueryError(
                f"the checkpoint {place} is of a query with the columns {owner.asked.schema}; one with "
                f"{self.forms.asked.schema} cannot go on from it: give it the same columns, or take a new directory"
            )


def _told(forms: QueryForms) -> dict[str, str]:
    return {"query": explain(forms.asked), "text": forms.text}


def _note(place: Path, found: Mapping[str, Any]) -> None:
    write_json(place / _NAME, found)


def _stored(place: Path, needed: bool) -> dict[str, Any]:
    path = place / _NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not _has_text(found) or not (found.get("before") is None or _has_text(found["before"])):
            raise ValueError("it holds no texts of queries")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as bad:
        if not needed:  # whoever has the same text can do without, and writes it anew
            return {}
        raise StateError(f"{path} cannot be read: {bad}; restore it, or take a new directory") from None
    return dict(found)


def _has_text(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("text"), str) and isinstance(found.get("query"), str)
