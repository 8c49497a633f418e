"""Mutated queries: read or refused, never anything else; and nothing of a text is passed over."""

from __future__ import annotations

import random
import re

import pytest

from everwhen.errors import SqlError
from everwhen.language import syntax as s
from everwhen.language.parse import parse
from language.shown import shown, walk
from language.test_parse_expressions import CASES
from language.test_parse_queries import QUERIES, SOURCES, THESIS
from language.test_parse_statements import LONG, STATEMENTS

SEEDS = [
    LONG,
    *(text for text, _ in THESIS.values()),
    *(text for text, _ in QUERIES),
    *(text for text, _ in STATEMENTS),
    *(f"SELECT * FROM {text}" for text, _ in SOURCES),
    *(f"SELECT {text} FROM t" for text, _ in CASES),
]
PIECES = re.compile(r"\s+|\w+|'[^']*'|[<>=!|:]+|.", re.DOTALL)
WORDS = sorted({piece for seed in SEEDS for piece in PIECES.findall(seed) if not piece.isspace()})
CHARACTERS = "'\"`()[]{}<>=!|:;,.+-*/%?@#$\\~^& \n\t\0\ufeffäß٣😀\ud800aA19_e"


def mutated(r: random.Random, seed: str) -> str:
    pieces = PIECES.findall(seed)
    for _ in range(r.choice([1, 1, 2, 3, 6])):
        i, j = r.randrange(len(pieces)), r.randrange(len(pieces))
        match r.randrange(8):
            case 0 if len(pieces) > 1:
                del pieces[i]
            case 1:
                pieces.insert(i, pieces[j])
            case 2:
                pieces[i], pieces[j] = pieces[j], pieces[i]
            case 3:
                pieces.insert(i, f" {r.choice(WORDS)} ")
            case 4:
                pieces[i] = r.choice(WORDS)
            case 5:
                pieces.insert(i, r.choice(CHARACTERS))
            case 6 if len(pieces) > 2:
                del pieces[min(i, j) + 1 : max(i, j)]
            case 7:
                pieces[i:i] = PIECES.findall(r.choice(SEEDS))
    return "".join(pieces)


@pytest.mark.parametrize("start", range(4))
def test_mutated_queries_are_read_or_refused(start: int) -> None:
    r = random.Random(start)
    read = refused = 0
    for _ in range(1500):
        text = mutated(r, r.choice(SEEDS))
        try:
            trees = parse(text)
        except SqlError as error:
            assert 0 <= error.start <= len(text)
            assert error.problem
            refused += 1
        else:
            read += 1
            for node in walk(trees):
                span = getattr(node, "span", s.Span(0, 1))
                assert 0 <= span.start < span.end <= len(text)
    assert read > 100
    assert refused > 300


OPTIONAL = {
    "ALL", "AS", "CONSTANT", "DISTINCT", "INNER", "INTERVAL", "LEFT", "OUTER", "PRIMARY", "RANGE", "TEMPORAL",
    ";", ",", "+",
}  # fmt: skip
"""What may be left out somewhere: SELECT ALL, AS, LEFT SEMI JOIN, [RANGE UNBOUNDED] …"""


def test_no_lexeme_can_be_left_out_without_a_trace() -> None:
    """Nothing is passed over: without any one of its lexemes a text is refused or means something else."""
    without_meaning: dict[str, str] = {}
    for seed in SEEDS:
        pieces = PIECES.findall(re.sub(r"--.*|/\*.*\*/", " ", seed))
        whole = shown(parse(seed))
        for i, piece in enumerate(pieces):
            if not piece.isspace():
                try:
                    found = shown(parse("".join([*pieces[:i], " ", *pieces[i + 1 :]])))
                except SqlError:
                    continue
                if found == whole:
                    without_meaning[piece.upper()] = seed
    assert without_meaning.keys() == OPTIONAL, without_meaning
