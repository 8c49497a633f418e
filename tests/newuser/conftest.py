from __future__ import annotations

from pathlib import Path

import pytest

from newuser.desk import TWEETS, Desk


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """A folder with a file of tweets."""
    found = Desk(tmp_path, capsys)
    found.write("tweets.csv", TWEETS)
    return found
