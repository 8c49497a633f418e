"""Examples in docstrings as code blocks of the API reference.

Docstrings are Markdown with doctests in them, and Markdown reads `>>>` as a quotation.  This extension of griffe puts
fences around every doctest that is not indented already.
"""

from __future__ import annotations

from typing import Any

import griffe


class DoctestBlocks(griffe.Extension):
    """Fences around doctests, for every object that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its doctests in fences; a doctest ends at an empty line.

    >>> print(fenced("Adds." + chr(10) * 2 + "    >>> 1 + 1" + chr(10) + "    2"))
    Adds.
    <BLANKLINE>
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    """
    lines: list[str] = []
    indent: int | None = None
    for line in [*text.splitlines(), ""]:
        stripped = line.lstrip()
        if indent is None and stripped.startswith(">>> "):
            indent = len(line) - len(stripped)
            lines += ["", "```pycon"]
        elif indent is not None and not stripped:
            lines.append("```")
            indent = None
        lines.append(line[indent:] if indent else line)
    return "\n".join(lines)
