"""Running the examples of a document, as they are printed.

In order, in one directory and one namespace per document: `python` blocks as doctests (or as plain code if they have no
prompts); `console` blocks as a session of the program `everwhen`, in which `cat FILE` shows, and so makes, an input
file.  Other blocks are pictures.  A block in an unknown language is an error, so that nothing escapes by a misspelling.
"""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everwhen.cli.program import main

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
"""Every page of the project."""
PICTURES = {"text", "json", "sql"}  # `sql` blocks are run by `docs/test_sql_reference.py`


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line on which the text starts (1-based)."""

    language: str
    text: str
    line: int


def blocks(document: Path) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    opened: tuple[str, int] | None = None
    collected: list[str] = []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("```"):
            collected.append(line)
        elif opened is None:
            opened, collected = (line[3:].strip(), number + 1), []
        else:
            yield Block(opened[0], "\n".join(collected) + "\n", opened[1])
            opened = None
    assert opened is None, f"{document.name}: the block of line {opened} is not closed"


def run_python(block: Block, namespace: dict[str, Any], name: str) -> dict[str, Any]:
    """The namespace after the block has run."""
    if ">>>" not in block.text:
        code = compile("\n" * (block.line - 1) + block.text, name, "exec")
        exec(code, namespace)
        return namespace
    test = doctest.DocTestParser().get_doctest(block.text, namespace, f"{name}:{block.line}", name, block.line - 1)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)
    return dict(test.globs)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a session and what stands under each."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: a session starts with a command"
    yield from zip(parts[1::2], parts[2::2], strict=True)


def run_session(block: Block, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = 0
    for command, shown in commands(block):
        words = shlex.split(command)
        match words:
            case ["cat", name]:
                (where / name).write_text(shown, encoding="utf-8")
            case ["make", target]:
                rule = rf"^{target}:"
                assert re.search(rule, (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), command
            case ["echo", "$?"]:
                assert shown.strip() == str(status), command
            case ["everwhen", *arguments]:
                capsys.readouterr()
                status = main(arguments)
                out, err = capsys.readouterr()
                assert _as_shown(out + err, shown), f"line {block.line}: {command}\n{out}{err}"
            case _:
                pytest.fail(f"line {block.line}: {command!r} cannot be checked")


def _as_shown(found: str, shown: str) -> bool:
    """Whether a text is as the page has it; `…` there stands for any part of a line."""
    parts = (re.escape(part) for part in shown.rstrip().split("…"))
    return re.fullmatch(".*".join(parts), found.rstrip()) is not None


def run_document(document: Path, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All blocks of a document; the current directory is `where`."""
    namespace: dict[str, Any] = {"__name__": document.stem}
    for block in blocks(document):
        match block.language:
            case "python":
                namespace = run_python(block, namespace, document.name)
            case "console":
                run_session(block, where, capsys)
            case other:
                assert other in PICTURES, f"{document.name}, line {block.line}: a block in {other!r}"
