"""The pictures of docs/page.md, made from the demo as it runs; `make test-page PICTURES=docs/pictures` keeps them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from everwhen.serve.demo import RATE, show_demo
from serve.browser import Browser, Page
from serve.served import Served, served, until

TEXT = "SELECT category, COUNT(*) AS bids\nFROM Price\nWHERE bid_prize > 1000  -- the dear ones\nGROUP BY category"


def view(page: Page, name: str, seconds: float = 1.5) -> None:
    page.click(f"#tab-{name}")
    time.sleep(seconds)


def take(page: Page, folder: Path, name: str) -> None:
    file = folder / f"page-{name}.png"
    page.picture(file)
    assert file.stat().st_size > 20_000, "an empty picture"


def opened(browser: Browser, server: Served, query: str, **how: object) -> Page:
    page = browser.page(**how)  # type: ignore[arg-type]
    page.open(server.address)
    page.click(f"[data-query='{query}']")
    return page


@pytest.mark.slow
def test_pictures_of_all_views(browser: Browser, tmp_path: Path) -> None:
    folder = Path(os.environ.get("EVERWHEN_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    with served("", prepare=show_demo, playing=True, rate=RATE, batch=1_000) as server:
        until(lambda: server.engine.elements > 45_000, 600)
        page = opened(browser, server, "by_category", width=1440, height=900)
        time.sleep(6)
        page.until("document.querySelectorAll('.graph .node').length > 20")
        take(page, folder, "graph")
        page.click("[data-node='query by_category']")
        page.until("document.querySelector('#cost').innerText.includes('Costliest')")
        page.until("!document.querySelector('#why').innerText.includes('looking')", 90)
        take(page, folder, "why")
        view(page, "answer", 3)
        page.until("document.querySelectorAll('#answer tbody tr').length === 10")
        page.until("document.querySelector('#answer tr.corrected') !== null")
        take(page, folder, "answer")
        view(page, "time", 3)
        page.until("document.querySelectorAll('.life').length > 10")
        take(page, folder, "time")
        view(page, "sources")
        take(page, folder, "sources")
        view(page, "consistency")
        take(page, folder, "consistency")
        view(page, "editor")
        page.type("#sql", TEXT)
        page.until("document.querySelector('.ground .wrong') !== null")
        take(page, folder, "editor")
        assert not page.complaints()
        page.close()
        page = opened(browser, server, "by_category", width=1440, height=900, dark=True)
        view(page, "answer", 3)
        take(page, folder, "dark")
        page.close()
        page = opened(browser, server, "top_items", width=390, height=844, touch=True)
        view(page, "answer", 3)
        page.until("document.querySelectorAll('#answer tbody tr').length === 8")
        take(page, folder, "phone")
        page.close()
        assert not server.engine.problem
