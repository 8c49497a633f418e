"""The page in a real Chromium, against a session that runs: what is seen, and what a click does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from everwhen.core.consistency import Emit
from everwhen.core.time import INF
from everwhen.serve.app import page_files
from serve.browser import Browser, Page
from serve.served import Served, bid, served, until, write

ELEMENTS = [
    bid(1, 7, 40), bid(4, 8, 55), {"op": "cti", "t": 3},
    bid(9, 7, 30), bid(5, 7, 90), {"op": "cti", "t": 4},
    {"op": "adjust", "vs": 4, "ve": 5, "vnew": 4, "row": {"item": 8, "price": 55}}, bid(12, 9, 1),
    {"op": "cti", "t": 8},
]  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(files={"Bid": write(tmp_path / "bids.jsonl", ELEMENTS)}) as found:
        yield found


@pytest.fixture
def page(browser: Browser, server: Served) -> Iterator[Page]:
    found = browser.page()
    found.open(server.address)
    found.until("document.querySelector('.card') !== null")
    yield found
    complaints = found.complaints()
    found.close()
    assert not complaints


def rows(page: Page) -> list[list[str]]:
    """The cells of the answer."""
    code = "[...document.querySelectorAll('#answer tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))"
    return page.run(code)


def open_view(page: Page, name: str) -> None:
    page.click(f"#tab-{name}")
    page.until(f"document.querySelector('#tab-{name}').getAttribute('aria-selected') === 'true'")


def test_the_page_is_small() -> None:
    weight = sum(len(gzip.compress(data)) for data in page_files().values())
    assert weight < 100_000, f"{weight:,} bytes"
    assert all("innerHTML" not in data.decode() for data in page_files().values())


def test_it_opens_with_the_token_and_asks_nobody_else(page: Page, server: Served) -> None:
    assert page.run("location.hash") == "" and "token" not in page.run("location.href")
    assert page.run("document.cookie") == ""  # no script can read it
    page.until("document.querySelector('#state').innerText.includes('paused')")
    assert all(each.startswith(server.base) for each in page.requests()), page.requests()
    page.call("Page.reload")
    page.until("document.querySelector('.card') !== null")  # the cookie is enough


def test_it_loads_within_a_second(browser: Browser, server: Served) -> None:
    took = []
    for _ in range(3):  # the machine may have other things to do
        page = browser.page()
        page.open(server.address)
        page.until("document.querySelector('.card') !== null")
        took.append(page.run("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        page.close()
    assert min(took) < 1_000


def test_the_graph_shows_what_runs_and_a_click_says_why(page: Page, server: Served) -> None:
    server.step()
    page.until(
        "document.querySelectorAll('.graph .node').length === 4 && document.querySelectorAll('.edge').length === 3"
    )
    page.until("document.querySelector('.legend').innerText.includes('Bid holds it back')")
    assert page.run("document.querySelectorAll('.node.waits').length") == 4
    page.click("[data-node='1 aggregate']")
    page.until("document.querySelector('#why').innerText.includes('Bid has promised 3')")
    page.until("document.querySelector('#cost').innerText.includes('Costliest')")
    page.until("document.querySelector('.facts').innerText.includes('2 in, 2 out')")


def test_an_answer_is_seen_now_then_and_corrected(page: Page, server: Served) -> None:
    open_view(page, "answer")
    server.step(2)
    page.until("document.querySelector('#answer tbody')?.innerText.includes('90')")  # a frame may be of the first step
    assert [row[1:3] for row in rows(page)] == [["7", "90"], ["8", "55"]]
    assert page.text("#finality") == "provisional"
    server.step()
    page.until("document.querySelector('#corrections li.taken-back del')?.innerText === '8 · 55'")
    page.until("document.querySelector('#answer').innerText.includes('9')")
    page.run(
        "(() => { const s = document.querySelector('#instant'); s.value = 4; s.dispatchEvent(new Event('input')); })()"
    )
    page.until("document.querySelector('#finality').innerText === 'final'")
    assert [row[1:3] for row in rows(page)] == [["7", "40"]]
    page.click("#now")
    page.until("document.querySelector('#finality').innerText === 'provisional'")


def test_a_row_that_was_corrected_is_marked(page: Page, server: Served) -> None:
    server.post("/api/statements", {"text": "SELECT item, price FROM Bid WINDOW(RANGE 20)", "name": "bids"})
    open_view(page, "answer")
    page.click("[data-query='bids']")
    server.step(2)
    page.until("document.querySelectorAll('#answer tbody tr').length === 4")
    server.step()
    page.until("document.querySelector('#corrections .taken-back') !== null")
    server.post("/api/statements", {"text": "SELECT item, price FROM Bid WINDOW(RANGE 20)"})


def test_nothing_of_a_stream_is_markup(browser: Browser, tmp_path: Path) -> None:
    text = "<img src=x onerror=\"document.title='broken'\"><b>bold</b>"
    element = {"op": "insert", "vs": 1, "ve": 5, "row": {"t": text}}
    with served("CREATE STREAM S (t TEXT); SELECT t FROM S", {"S": write(tmp_path / "s.jsonl", [element])}) as server:
        page = browser.page()
        page.open(server.address)
        page.until("document.querySelector('.card') !== null")
        server.step()
        for view in ("answer", "time"):
            open_view(page, view)
            page.until("document.querySelector('#view').textContent.includes('<img src=x')")
        assert page.run("document.querySelector('#view b, #view img') === null || !document.querySelector('#view img')")
        assert page.run("document.title") == "Everwhen"
        page.close()


def test_the_editor_shows_the_place_of_an_error_and_the_plan(page: Page) -> None:
    open_view(page, "editor")
    page.type("#sql", "SELECT item,\n  prize FROM Bid")
    page.until("document.querySelector('#trouble').innerText.startsWith('line 2, column 3')")
    assert page.run("document.querySelector('.ground .wrong').textContent") == "prize"
    page.run("document.querySelector('#sql').value = ''")
    page.type("#sql", "SELECT item, price FROM Bid WHERE price > 50")
    page.until("document.querySelector('#trouble').innerText === ''")
    page.until("document.querySelector('#plan').innerText.includes('price > 50')")
    page.run("document.querySelector('#sql').value = 'SELECT '")
    page.type("#sql", "pri")
    page.until("document.querySelector('#choices').innerText.includes('price')")
    page.key("Tab")
    page.until("document.querySelector('#sql').value.includes('SELECT price')")


def test_queries_start_change_stop_and_go(page: Page, server: Served) -> None:
    open_view(page, "editor")
    page.type("#sql", "SELECT item, price FROM Bid WHERE price > 50")
    page.type("#name", "dear")
    page.click("#start")
    page.until("document.querySelector('[data-query=dear][aria-current=true]') !== null")
    page.run("document.querySelector('#sql').value = ''")
    page.type("#sql", "SELECT item, price FROM Bid WHERE price > 60")
    page.click("#alter")
    page.until("document.querySelector('#toast').innerText.includes('altered query dear')")
    until(lambda: server.engine.session.query("dear").text.endswith("60"))
    page.click("#stop")
    page.until("document.querySelector('[data-query=dear] .badge').innerText === 'stopped'")
    assert server.engine.session.query("dear").state == "stopped"
    page.click("#drop")
    page.until("document.querySelector('[data-query=dear]') === null")
    assert [each.name for each in server.engine.session.queries()] == ["q1"]


def test_dragging_the_point_moves_the_query(page: Page, server: Served) -> None:
    open_view(page, "consistency")
    page.until("document.querySelector('.level-point.selected') !== null")
    start = page.middle(".level-point.selected circle")
    weak = page.run(
        "(() => { const b = document.querySelector('.triangle .legal').getBoundingClientRect();"
        " return [b.left, b.bottom, b.right, b.top]; })()"
    )
    page.drag(start, (weak[0] + 2, weak[1] - 2))
    until(lambda: server.engine.session.query("q1").consistency.remember == 0)
    page.until("document.querySelector('#level').innerText === 'waits 0, remembers 0'")
    page.run("document.querySelector('.level-point.selected').focus()")
    page.key("ArrowUp")
    page.key("ArrowUp")  # it goes on from where the first one will end: no frame has to come between them
    until(lambda: server.engine.session.query("q1").consistency.remember == 10)


def test_an_order_begins_where_the_last_one_will_end(page: Page, server: Served) -> None:
    open_view(page, "consistency")
    page.until("document.querySelector('.level-point.selected') !== null")
    page.run(  # all of it before the server has answered
        "(() => { const view = everwhenPage.view, press = (key) => document.querySelector('.level-point.selected')"
        ".dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));"
        " view.bounds(0, 0); press('ArrowUp'); press('ArrowUp'); press('ArrowDown'); })()"
    )
    page.run("everwhenPage.view.last")
    assert server.engine.session.query("q1").consistency.remember == 1
    page.run("everwhenPage.view.bounds(Infinity, Infinity); everwhenPage.view.bounds(0, Infinity)")
    page.run("everwhenPage.view.last")
    level = server.engine.session.query("q1").consistency
    assert (level.block, level.remember, level.emit) == (0, INF, Emit.CURRENT)
    assert page.text("#level") == "waits 0, remembers ∞"


def test_time_shows_lifetimes_and_the_promise(page: Page, server: Served) -> None:
    server.step()
    open_view(page, "time")
    page.until("document.querySelectorAll('.timeline .life').length === 2")
    page.until("document.querySelector('.cti-text').textContent === 'final before 3'")
    server.step(2)
    page.until("document.querySelector('.cti-text').textContent === 'final before 8'")
    assert page.run("document.querySelectorAll('.life .sure').length") >= 1
    assert page.run("document.querySelectorAll('.charts .chart').length") == 5


def test_sources_tell_how_far_they_are_and_whom_they_hold_back(page: Page, server: Served) -> None:
    open_view(page, "sources")
    server.step()
    page.until("document.querySelector('[data-source=Bid]').innerText.includes('holds back q1')")
    page.until("document.querySelector('[data-source=Bid]').innerText.includes('final before 3')")
    page.click("#play")
    page.until("document.querySelector('[data-source=Bid]').innerText.includes('has ended')")


def test_a_step_and_a_pause_are_orders_of_the_page(page: Page, server: Served) -> None:
    page.click("#step")
    until(lambda: server.engine.elements == 3)
    page.click("#play")
    until(lambda: server.engine.elements == 9)
    page.until("document.querySelector('#play').innerText === 'Pause'")
    page.click("#play")
    until(lambda: not server.engine.playing)


def test_a_wrong_token_and_a_wrong_input_are_said_in_words(browser: Browser, tmp_path: Path) -> None:
    wrong = [bid(5, 1, 1), {"op": "cti", "t": 9}, bid(3, 1, 1)]
    with served(files={"Bid": write(tmp_path / "bids.jsonl", wrong)}) as server:
        page = browser.page()
        page.open(f"{server.base}/#token=wrong")
        page.until("document.querySelector('#problem').innerText.includes('the token is wrong')")
        page.close()
        page = browser.page()
        page.open(server.address)
        page.until("document.querySelector('.card') !== null")
        server.step()
        page.until("document.querySelector('#problem').innerText.includes('an input is wrong')")
    page.until("document.querySelector('#state').innerText === 'no connection'")
    page.close()


def test_a_source_that_dies_is_said_and_what_was_answered_stays(page: Page, server: Served, tmp_path: Path) -> None:
    open_view(page, "answer")
    server.step()
    page.until("document.querySelectorAll('#answer tbody tr').length === 2")
    (tmp_path / "bids.jsonl").unlink()
    server.post("/api/statements", {"text": "SELECT item FROM Bid", "name": "other"})
    server.engine.submit(lambda: server.engine.feeds.set_batch(2)).result(60)  # it is opened again
    page.click("#step")
    page.until("document.querySelector('#problem').innerText.includes('bids.jsonl')")
    assert page.text("#state") == "paused" and len(rows(page)) == 2


def test_late_rows_are_offered_where_there_are_some(browser: Browser, tmp_path: Path) -> None:
    text = "CREATE STREAM S (at INT, x INT) ORDERED BY at WITHIN 1 LATE ROWS DROP; SELECT x FROM S"
    file = tmp_path / "s.csv"
    file.write_text("at,x\n1,1\n9,2\n20,3\n3,4\n")
    with served(text, {"S": str(file)}) as server:
        page = browser.page()
        page.open(server.address)
        open_view(page, "sources")
        server.step()
        page.until("document.querySelector('[data-source=S]') !== null")
        assert not page.run("document.querySelector('[data-source=S] .load').checkVisibility()")
        server.step()
        page.until("document.querySelector('[data-source=S] .load').checkVisibility()")
        told = page.run("fetch(document.querySelector('.load').href).then((answer) => answer.text())")
        assert json.loads(told) == {"op": "insert", "vs": 3, "ve": 4, "row": {"x": 4}}
        page.close()


def test_a_read_only_page_offers_no_orders(browser: Browser) -> None:
    with served(read_only=True) as server:
        page = browser.page()
        page.open(server.address)
        page.until("document.querySelector('.card') !== null")
        for view in ("graph", "editor", "consistency"):
            open_view(page, view)
            shown = "[...document.querySelectorAll('.steer')].filter((each) => each.checkVisibility()).length"
            assert page.run(shown) == 0
        page.close()


def test_everything_that_can_be_pressed_has_a_name_and_a_phone_has_no_wide_page(
    browser: Browser, server: Served
) -> None:
    server.step(2)
    page = browser.page(390, 844, touch=True)
    page.open(server.address)
    page.until("document.querySelector('.card') !== null")
    for view in ("graph", "answer", "time", "sources", "consistency", "editor"):
        open_view(page, view)
        assert page.run("document.documentElement.scrollWidth") <= 390, view
        tree = page.call("Accessibility.getFullAXTree")["nodes"]
        pressed = ("button", "tab", "slider", "textbox", "combobox", "listbox")
        told = [each for each in tree if not each["ignored"] and each["role"]["value"] in pressed]
        assert told and not [each for each in told if not each.get("name", {}).get("value")], view
    page.close()


def test_a_graph_of_200_operators_is_laid_out_at_once(page: Page) -> None:
    nodes = [{"id": f"n{i}", "kind": "operator", "inputs": [f"n{i - 1 - i % 7}"] if i > 7 else []} for i in range(200)]
    told = page.run(
        "import('./layout.js').then(({layout}) => { const t = performance.now();"
        f" const r = layout({json.dumps(nodes)});"
        " const at = [...r.at.values()].map((p) => `${p.x} ${p.y}`);"
        " return [performance.now() - t, new Set(at).size]; })"
    )
    assert told[0] < 200 and told[1] == 200


def test_a_word_at_the_caret_and_the_kinds_of_words(page: Page) -> None:
    told = page.run(
        "import('./sql_text.js').then(({pieces, candidates, wordBefore}) => ["
        "pieces(\"SELECT 'a''b' -- c\").map((p) => p.kind), wordBefore('SELECT Bid.pr', 13).word,"
        "candidates('Bid.pr', {streams: {Bid: ['price']}, functions: []}),"
        "pieces('a b', {start: 2, end: 3}).at(-1)])"
    )
    assert told == [["keyword", "", "string", "", "comment"], "Bid.pr", ["Bid.price"], {"kind": "wrong", "words": "b"}]
