"""Random damage to queries: what people and programs send by mistake."""

from __future__ import annotations

import random
import re

_TOKEN = re.compile(r"\s+|\w+|'[^']*'|\"[^\"]*\"|<=|>=|<>|\|\||::|.", re.DOTALL)
_WORDS = re.findall(
    r"\S+",
    """
    SELECT FROM WHERE GROUP BY HAVING WINDOW ( ) [ ] RANGE ROWS SLIDE PARTITION UNBOUNDED NOW DISTINCT UNION ALL ANY IN
    EXISTS NOT NULL AND OR = <> < > + - * / % || :: , . ; CASE WHEN THEN ELSE END CAST AS INT TEXT DATE ISTREAM DSTREAM
    RSTREAM LEFT JOIN ON USING SEMI ANTI FULL COUNT SUM MAX MIN AVG median k v w s a b c A B R x 1 0 -1 1.5 '' 'a' "k"
    TRUE MINUTES GRANULARITY WITH CREATE STREAM DROP KEY EXCEPT INTERSECT BETWEEN LIKE IS INTERVAL LIFETIME INSERTS
    CONSISTENCY STRONG FILTER upper round \x00 é ` /* -- ORDER LIMIT
    """,
)


def mutated(seeds: list[str], rng: random.Random) -> str:
    """One of the texts with one to four changes: tokens or characters removed, doubled, exchanged, put in."""
    text = rng.choice(seeds)
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.15:
            text = _character(text, rng)
            continue
        tokens = _TOKEN.findall(text) or [" "]
        at = rng.randrange(len(tokens))
        match rng.randrange(6):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                other = rng.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens.insert(at, f" {rng.choice(_WORDS)} ")
            case 4:
                tokens[at] = f" {rng.choice(_WORDS)} "
            case _:
                foreign = _TOKEN.findall(rng.choice(seeds))
                start = rng.randrange(len(foreign))
                tokens[at : at + rng.randint(0, 3)] = foreign[start : start + rng.randint(1, 8)]
        text = "".join(tokens)
    return text


def _character(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    match rng.randrange(3):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[at + 1 :]
        case _:
            return text[:at] + rng.choice("'\"`()[]{};,.*/-+=<>|:%$#@!?\\\n\t\0 é∞0x") + text[at:]
