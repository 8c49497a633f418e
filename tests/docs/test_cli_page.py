"""The pages of the command line and of the shell leave nothing out: commands, options, ends.  Their sessions are run
by `test_examples.py`."""

from __future__ import annotations

import re

import pytest

from doc_examples import ROOT, blocks, commands
from everwhen.cli import command as cli_command
from everwhen.cli.program import main
from everwhen.shell.commands import COMMANDS

PAGE = ROOT / "docs" / "cli.md"
SHELL = ROOT / "docs" / "session.md"


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main([*arguments, "--help"]) == 0
    return capsys.readouterr().out


def sections() -> dict[str, str]:
    """The text below each heading."""
    parts = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_and_option_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    known = re.findall(r"^    (\w+)  ", helped(capsys), re.MULTILINE)
    assert known
    for command in known:
        options = set(re.findall(r"--[\w-]+", helped(capsys, command).partition("examples:")[0])) - {"--help"}
        named = set(re.findall(r"--[\w-]+", sections()[command]))
        assert options - named == set(), command


def test_no_option_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    real = {"--help", *re.findall(r"--[\w-]+", helped(capsys))}
    for command in re.findall(r"^    (\w+)  ", helped(capsys), re.MULTILINE):
        real |= set(re.findall(r"--[\w-]+", helped(capsys, command)))
    assert set(re.findall(r"--[a-z][\w-]+", PAGE.read_text(encoding="utf-8"))) - real == set()


def test_every_exit_status_is_there() -> None:
    ends = {value for name, value in vars(cli_command).items() if name.isupper() and isinstance(value, int)}
    # times are not ends
    ends -= {cli_command.MIN_TIME, cli_command.MAX_TIME}
    listed = re.findall(r"^\| (\d+) \|", sections()["Exit status"], re.MULTILINE)
    assert {int(status) for status in listed} == ends


def test_every_command_but_the_demo_is_shown_at_work() -> None:
    used = {
        command.split()[1]
        for block in blocks(PAGE)
        if block.language == "console"
        for command, _ in commands(block)
        if command.startswith("everwhen ")
    }
    assert used == sections().keys() - {"Exit status", "Files", "Times", "The first start", "demo"}


def test_every_command_of_the_shell_is_there() -> None:
    text = SHELL.read_text(encoding="utf-8")
    listed = re.findall(r"`\\([a-z]+)", "\n".join(line for line in text.splitlines() if line.startswith("|")))
    assert sorted(listed) == sorted(COMMANDS)
    missing = [command.usage for command in COMMANDS.values() if f"`\\{command.usage}`" not in text]
    assert missing == []
