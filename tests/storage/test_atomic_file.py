"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from everwhen.storage.atomic_file import whole_file


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_with_the_file_that_was_written(tmp_path: Path, code: int) -> None:
    with pytest.raises(OSError, match="to_write") as told, whole_file(tmp_path / "to_write"):
        raise OSError(code, "full")
    assert told.value.filename == str(tmp_path / "to_write") and not list(tmp_path.iterdir())
