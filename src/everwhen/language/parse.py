"""From text to statements.

`parse` is total: every text is either read in full, character by character, or refused with an `SqlError` that names
the place, what was expected and what came.  Nothing that was written is passed over: see `dialect` for the lexemes and
`grammar_*` for the constructs, from expressions (`grammar_expression`, `grammar_call`) over FROM (`grammar_source`) and
queries (`grammar_query`) to statements (`grammar_statement`).  It knows nothing of streams, columns or types; that is
the binder's work.
"""

from __future__ import annotations

from everwhen.language.grammar.statements.statement import Statements
from everwhen.language.syntax import Statement


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a text; at least one.

    >>> [type(statement).__name__ for statement in parse("SELECT * FROM Bid WINDOW(RANGE 10 MINUTES); DROP STREAM Bid")]
    ['Ask', 'Drop']
    """
    grammar = Statements(text)
    try:
        return grammar.statements()
    except RecursionError:
        # The grammar counts its depth, but the caller may have used up most of the stack.
        raise grammar.error("nested too deeply; name parts of it with WITH") from None
