"""The program `everwhen`: run, explain, shell, check, history, diff, demo."""

from everwhen.cli.program import main

__all__ = ["main"]
