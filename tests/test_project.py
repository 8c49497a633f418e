"""The project itself: pins, make targets, layering, the rules of the house that a machine can check."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
SOURCES = sorted((ROOT / "src" / "everwhen").rglob("*.py"))
CODE = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def offenders(pattern: str, paths: list[Path]) -> list[str]:
    """The places where a pattern stands, as file:line."""
    found = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if found.search(line)
    ]


def test_constraints_are_exact_pins_and_nothing_else() -> None:
    wrong = [line for line in CONSTRAINTS if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)]
    assert CONSTRAINTS and not wrong


def test_every_dependency_is_pinned() -> None:
    wanted = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    pinned = {canonical(line.split("==")[0]) for line in CONSTRAINTS}
    assert {canonical(re.split(r"[<>=!~\[; ]", entry)[0]) for entry in wanted} <= pinned


def test_the_version_is_said_once() -> None:
    import everwhen

    assert getattr(everwhen, "__version__", PROJECT["project"]["version"]) == PROJECT["project"]["version"]


def test_licence_is_the_one_declared() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_ci_runs_make_test_and_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert re.findall(r"\bmake\b.*", script.read_text(encoding="utf-8")) == ["make test"]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")
@pytest.mark.parametrize("target", ["demo", "test", "bench", "check", "clean"])
def test_make_target_is_there(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_imports_go_downwards_only() -> None:
    check = "lint_imports(config_filename='layers.toml', no_cache=True)"
    program = f"from importlinter.cli import lint_imports; raise SystemExit({check})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_code_is_linted() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_source_files_are_small_enough_to_hold_in_mind() -> None:
    assert not names([path for path in SOURCES if len(path.read_text(encoding="utf-8").splitlines()) > 450])


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in SOURCES if not re.match(r'\s*r?"""', path.read_text(encoding="utf-8"))]
    assert not names(silent)


def test_nothing_is_left_unfinished_or_swallowed() -> None:
    assert not offenders(r"\b(TODO|FIXME|XXX)\b", SOURCES)
    assert not offenders(r"^\s*except( Exception)?:\s*(pass)?\s*$", SOURCES)


def test_tests_never_import_the_benchmarks() -> None:
    modules = "|".join(sorted(path.stem for path in (ROOT / "bench").rglob("*.py")))
    assert not offenders(rf"^\s*(from|import) (bench\b|({modules})\b)", sorted((ROOT / "tests").rglob("*.py")))


def test_no_package_index_is_named() -> None:
    texts = [ROOT / name for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/run")] + CODE
    here = Path(__file__).resolve()
    assert not offenders(r"https?://[^ )\"]*(simple|pypi|registry|mirror)", [path for path in texts if path != here])
