"""One browser for all tests of the page; where there is none, they are left out in one line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serve.browser import Browser, browsing, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("there is no browser: set EVERWHEN_CHROMIUM, or install chromium")
    with browsing(program) as found:
        yield found
