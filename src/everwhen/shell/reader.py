"""Lines as they are typed or stand in a script, put together to statements and commands.

A statement ends with `;`, wherever that stands outside of strings, quoted names and comments; a command is a line that
begins with a backslash, also amid a statement, which then goes on.  What is handed on has as many lines before it as
the script has, so that errors name the script's own lines and columns.  It is no parser: whether a statement is one,
SQL says.

    >>> reader = Reader()
    >>> [piece.text for piece in reader.take("SELECT ';' FROM Bid; SELECT")]
    ["SELECT ';' FROM Bid;"]
    >>> reader.is_under_way, [(piece.text.strip(), piece.text.count(chr(10))) for piece in reader.take("1 FROM Bid;")]
    (True, [('SELECT\\n1 FROM Bid;', 1)])
    >>> reader.take("\\\\show q1")
    [Piece(text='\\\\show q1', is_command=True)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_QUOTES: Final = ("'", '"', "`")


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement or a command, whole."""

    text: str
    is_command: bool = False


@dataclass
class Reader:
    """Takes line after line; `finish` when there are no more.  `numbered`: count lines from the first one on."""

    numbered: bool = False
    _line: int = 0
    _held: str = ""
    _mode: str = ""  # the quotation mark that is open, or "/*"
    _depth: int = 0
    _solid: bool = False  # whether there is more than white space and comments

    @property
    def is_under_way(self) -> bool:
        """Whether a statement has begun and not ended."""
        return self._solid or self._mode != ""

    def take(self, line: str) -> list[Piece]:
        """The statements that end in this line, or the command that it is."""
        self._line += 1
        if not self.is_under_way:
            self._held = "\n" * (self._line - 1) if self.numbered else ""
        if not self._mode and line.lstrip().startswith("\\"):
            self._held += "\n" if self._solid else ""
            return [Piece(line.strip(), True)]
        found: list[Piece] = []
        begin = at = 0
        while at < len(line):
            width, ends = self._step(line, at)
            at += width
            if ends:
                if self._solid:
                    found.append(Piece(self._held + line[begin:at]))
                lines = self._line - 1 if self.numbered else 0
                self._held, self._solid, begin = "\n" * lines + " " * at, False, at
        self._held += line[begin:] + "\n"
        return found

    def finish(self) -> list[Piece]:
        """What is left without a `;`."""
        left = [Piece(self._held.rstrip())] if self.is_under_way else []
        self.cancel()
        return left

    def cancel(self) -> None:
        """Forget what is under way."""
        self._held, self._mode, self._depth, self._solid = "", "", 0, False

    def _step(self, line: str, at: int) -> tuple[int, bool]:
        """Read what stands here: how many characters, and whether they end a statement."""
        two, one = line[at : at + 2], line[at]
        match self._mode:
            case "/*":
                if two not in ("/*", "*/"):
                    return 1, False
                self._depth += 1 if two == "/*" else -1
                self._mode = "/*" if self._depth else ""
                return 2, False
            case "" if two == "--":
                return len(line) - at, False
            case "" if two == "/*":
                self._mode, self._depth = "/*", 1
                return 2, False
            case "" if one == ";":
                return 1, True
            case "":
                self._solid = self._solid or not one.isspace()
                self._mode = one if one in _QUOTES else ""
            case quote if one == quote:  # a doubled mark closes and opens again
                self._mode = ""
        return 1, False
