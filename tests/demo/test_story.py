"""The story of single results: said, corrected, final, and nothing else."""

from __future__ import annotations

import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.demo.local import CONFIG, demo_queries
from everwhen.demo.nexmark.generator import generate
from everwhen.demo.story import PLOTS, Story, Storyteller
from everwhen.engine.local import LocalRuntime
from everwhen.stream.element import Adjust, Cti, Element, Insert
from everwhen.stream.element_batch import CTI, ElementBatch, batch_of

CLOSING = Schema.of([("itemID", pa.int64()), ("sellerID", pa.int64()), ("price", pa.float64())])
HIGHEST = Schema.of([("itemID", pa.int64()), ("bid_price", pa.float64())])


def closing(price: float, item: int = 7) -> dict[str, object]:
    return {"itemID": item, "sellerID": 1, "price": price}


def epoch(*elements: Element) -> ElementBatch:
    return batch_of(elements, CLOSING)


def teller() -> Storyteller:
    moments = iter(range(0, 1_000_000, 100))
    return Storyteller(lambda: next(moments))


def test_a_result_is_said_corrected_and_made_final() -> None:
    told = teller()
    told.take("q5", epoch(Insert(1_000, 1_001, closing(5.0)), Insert(1_200, 1_201, closing(1.0, 8))), NEVER, 1_300)
    assert told.told() == ()
    told.take("q5", epoch(Adjust(1_000, 1_001, 1_000, closing(5.0)), Insert(1_000, 1_001, closing(6.0))), 1_300, 1_700)
    (story,) = told.told()
    assert story == Story("q5", 1_000, closing(5.0), 1_300, closing(6.0), 1_700)
    assert story.told() == (
        "q5: item 7 closed at 0:01.0 for 5.00", "corrected 0.4 s later to 6.00", "not final yet",
    )  # fmt: skip
    told.take("q5", epoch(Cti(1_000)), 1_700, 1_800)
    assert told.current is not None, "the promise does not reach it"
    told.take("q5", epoch(Cti(1_001)), 1_800, 2_900)
    assert [one.told()[2] for one in told.told()] == ["final 1.2 s after that"]


def test_one_that_is_corrected_again_is_told_with_its_last_row_and_one_that_is_gone_is_not_told() -> None:
    told = teller()
    told.take("q5", epoch(Insert(10, 11, closing(5.0))), NEVER, 20)
    told.take("q5", epoch(Adjust(10, 11, 10, closing(5.0)), Insert(10, 11, closing(6.0))), 20, 30)
    told.take("q5", epoch(Adjust(10, 11, 10, closing(6.0)), Insert(10, 11, closing(7.0))), 30, 40)
    assert [(one.corrected["price"], one.corrected_at) for one in told.told()] == [(7.0, 40)]
    told.take("q5", epoch(Adjust(10, 11, 10, closing(7.0))), 40, 50)
    assert told.told() == ()


def test_a_correction_may_come_with_the_promise_that_makes_it_final() -> None:
    told = teller()
    told.take("q5", epoch(Insert(10, 11, closing(5.0))), NEVER, 20)
    last = epoch(Adjust(10, 11, 10, closing(5.0)), Insert(10, 11, closing(6.0)), Cti(25))
    told.take("q5", last, 20, 30)
    assert told.current is None and [one.told()[2] for one in told.told()] == ["final at once"]


def test_what_is_no_correction_is_no_story() -> None:
    told = teller()
    told.take("q5", epoch(Insert(10, INF, closing(5.0)), Insert(11, 12, closing(3.0, 9))), NEVER, 20)
    told.take("q5", epoch(Adjust(10, INF, 25, closing(5.0)), Insert(25, INF, closing(6.0))), 20, 30)
    assert told.told() == (), "time went on"
    told.take("q5", epoch(Adjust(11, 12, 11, closing(3.0, 9))), 30, 40)
    assert told.told() == (), "taken back, with nothing in its place"
    told.take("q5", epoch(Adjust(5, 6, 5, closing(3.0, 4)), Insert(5, 6, closing(2.0, 4))), 40, 50)
    assert told.told() == (), "nobody knows when it was said"
    told.take("q4", epoch(Insert(10, 11, closing(5.0))), 40, 50)
    assert told.told() == (), "another query's columns"


def test_the_leader_of_an_instant_may_be_another_item() -> None:
    told = teller()
    row = lambda item, price: {"itemID": item, "bid_price": price}  # noqa: E731
    told.take("q4", batch_of([Insert(1_000, INF, row(1, 5.0))], HIGHEST), NEVER, 2_000)
    late = [Adjust(1_000, INF, 1_500, row(1, 5.0)), Insert(1_500, INF, row(2, 9.0))]
    told.take("q4", batch_of(late, HIGHEST), 2_000, 3_000)
    (story,) = told.told()
    assert story.told()[:2] == ("q4: item 1 led at 0:01.5 with 5.00", "corrected 1.0 s later to item 2 with 9.00")


def test_stories_come_so_slowly_that_they_can_be_read() -> None:
    now = [0.0]
    told = Storyteller(lambda: now[0])

    def corrected(t: int) -> None:
        told.take("q5", epoch(Insert(t, t + 1, closing(5.0))), t, t + 1)
        told.take("q5", epoch(Adjust(t, t + 1, t, closing(5.0)), Insert(t, t + 1, closing(6.0))), t + 1, t + 2)

    corrected(10)
    told.take("q5", epoch(Cti(15)), 12, 16)
    assert len(told.stories) == 1
    corrected(20)
    assert told.current is None
    now[0] = 3.0
    corrected(30)
    assert told.current is not None and [one.at for one in told.told()] == [30, 10]


def test_the_demo_has_a_story_and_every_part_of_it_is_true() -> None:
    """What is told of the generated auction agrees with what the query says in the end."""
    queries = {name: query for name, query in demo_queries().items() if name in PLOTS}
    runtime, told = LocalRuntime(queries, emit="current"), teller()
    final: dict[tuple[int, tuple[object, ...]], int] = {}
    now = NEVER
    found = []
    for batches in generate(CONFIG, 6_000, epoch=500):
        before, now = now, max([now, *(int(b.vs[b.op != CTI].max()) for b in batches.values() if (b.op != CTI).any())])
        read = {name: batch for name, batch in batches.items() if name in runtime.inputs}
        for name, batch in runtime.push(read).items():
            told.take(name, batch, before, now)
            found += [element for element in batch.elements() if name == "q5"]
    for element in [*found, *runtime.close()["q5"].elements()]:
        if isinstance(element, Insert | Adjust):
            key = (element.vs, tuple(element.row.values()))
            alive = element.vnew > element.vs if isinstance(element, Adjust) else True
            final[key] = final.get(key, 0) + (1 if isinstance(element, Insert) else 0 if alive else -1)
    stories = {(one.query, one.at, tuple(one.said.values()), tuple(one.corrected.values())) for one in told.stories}
    assert stories
    for query, at, said, corrected in stories:
        if query == "q5":
            assert final[at, corrected] == 1 and not final.get((at, said))
