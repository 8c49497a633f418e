"""The punctuation of a batch of elements by its places: as elements for people, and as columns for operators.

Sources that read many elements at a time read their promises here once.  Answers have theirs behind the rows, and make
elements of them when somebody reads them (`TrailingPunctuation`).  A batch may have a plain dictionary of elements
instead: then whoever needs the columns reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from everwhen.core.punctuation import Punctuation
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.punctuation.api import PunctuationTable, read_promises
from everwhen.stream.element import ExternalCti, Punct

Places = Mapping[int, Punct | ExternalCti]
"""Elements of punctuation by their position."""


class BatchPunctuation(Mapping[int, Punct | ExternalCti]):
    """Promises about data, all of which fit their columns.  `places` are in order, `said` numbers promises by them."""

    __slots__ = ("_elements", "places", "said")

    def __init__(self, elements: Mapping[int, Punct], places: np.ndarray, said: PunctuationTable) -> None:
        self._elements = elements
        self.places = places
        self.said = said

    def __getitem__(self, place: int) -> Punct | ExternalCti:
        return self._elements[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)


class TrailingPunctuation(Mapping[int, Punct]):
    """Promises that stand in a row from the place `first` on."""

    __slots__ = ("_first", "said")

    def __init__(self, said: Sequence[Punctuation], first: int) -> None:
        self.said = said
        self._first = first

    def __getitem__(self, place: int) -> Punct:
        if not 0 <= place - self._first < len(self.said):
            raise KeyError(place)
        return Punct(self.said[place - self._first])

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._first, self._first + len(self.said)))

    def __len__(self) -> int:
        return len(self.said)


def punctuations(elements: Places, schema: Schema) -> Places:
    """The same read by columns, if all are promises about data and fit them; who checks them explains what does not."""
    found = {place: elements[place] for place in sorted(elements)}
    promises = {place: each for place, each in found.items() if isinstance(each, Punct)}
    if not promises or len(promises) < len(found):
        return elements
    try:
        said = read_promises((each.promise for each in promises.values()), schema, strict=True)
    except QueryError:
        return elements
    return BatchPunctuation(promises, np.array(list(promises), np.int64), said)


def part_of(elements: Places, begin: int, end: int) -> Places:
    """The punctuation of a part of a batch."""
    if isinstance(elements, BatchPunctuation):
        first, last = np.searchsorted(elements.places, (begin, end)).tolist()
        return {place - begin: elements[place] for place in elements.places[first:last].tolist()}
    return {place - begin: each for place, each in elements.items() if begin <= place < end}
