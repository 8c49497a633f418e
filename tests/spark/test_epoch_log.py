"""The driver's files of a checkpoint, without Spark: whose they are, and which version wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everwhen.errors import StateError
from everwhen.spark.driver.epoch_log import EpochLog, Identity
from everwhen.storage.state_format import software

WHO = Identity("plan", 2, "final")


def test_a_checkpoint_tells_who_has_written_it(tmp_path: Path) -> None:
    found = EpochLog(str(tmp_path)).open(WHO)
    about = json.loads((tmp_path / "everwhen" / "query.json").read_text())
    assert about["software"] == software() and about["format"] == 2
    assert EpochLog(str(tmp_path)).open(WHO) == found


@pytest.mark.parametrize(
    ("changed", "writer"),
    [
        ({"format": 1, "software": None}, r"Everwhen 0\.4 or an older version, in format 1"),
        ({"format": 3, "software": "everwhen 9.1"}, r"everwhen 9\.1, in format 3"),
        ({"format": "x" * 1000, "software": "y" * 1000}, r"y{60}, in format x{20};"),
    ],
)
def test_a_checkpoint_of_another_version_is_refused_by_name(
    changed: dict[str, Any], writer: str, tmp_path: Path
) -> None:
    EpochLog(str(tmp_path)).open(WHO)
    about = tmp_path / "everwhen" / "query.json"
    found = {**json.loads(about.read_text()), **changed}
    about.write_text(json.dumps({name: value for name, value in found.items() if value is not None}))
    with pytest.raises(StateError, match=rf"was written by {writer}.* Go on with the version that wrote it, or start"):
        EpochLog(str(tmp_path)).open(WHO)


def test_a_journal_that_somebody_has_written_is_damaged_and_nothing_else(tmp_path: Path) -> None:
    journal = EpochLog(str(tmp_path))
    journal.open(WHO)
    for text in ("[" * 100_000, "[]", "{", '{"format": 2}'):
        (tmp_path / "everwhen" / "query.json").write_text(text)
        with pytest.raises(StateError, match=r"query\.json is damaged"):
            journal.open(WHO)
