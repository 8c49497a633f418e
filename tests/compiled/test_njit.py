"""Loops that are compiled, and the same loops interpreted: equal results, and when which is done."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import everwhen
from everwhen.compiled import njit as loops
from everwhen.compiled.accounts import Account
from everwhen.compiled.claims import Claim
from everwhen.compiled.hashing import load, lowest_bit, mixed, store, word_at
from everwhen.compiled.interpreted import interpreted
from everwhen.compiled.loop_code import code_digest, code_size
from everwhen.compiled.njit import Loop, loop, loop_of, njit

SOURCES = str(Path(everwhen.__file__).parents[1])
BIDS = """\
{"op":"insert","vs":1,"ve":2,"row":{"item":"chair","price":40}}
{"op":"insert","vs":6,"ve":7,"row":{"item":"chair","price":90}}
{"op":"insert","vs":3,"ve":4,"row":{"item":"table","price":55}}
{"op":"insert","vs":8,"ve":9,"row":{"item":"chair","price":60}}
"""
BEST = "SELECT item, COUNT(*) AS bids, MAX(price) AS best FROM Bid WINDOW(RANGE 10) GROUP BY item"
ANSWER = [
    ("insert", 1, 6, "chair", 1, 40),
    ("insert", 6, 8, "chair", 2, 90),
    ("insert", 8, 11, "chair", 3, 90),
    ("insert", 11, 16, "chair", 2, 90),
    ("insert", 16, 18, "chair", 1, 60),
    ("insert", 3, 13, "table", 1, 55),
]
COLD_S = 15.0
"""Processor seconds for the first answer on an empty cache; it takes about 2, compiled at once it takes 65."""


SHORT = f"""
import sys, types
sys.modules["everwhen"] = types.ModuleType("everwhen")
sys.modules["everwhen"].__path__ = [{str(Path(everwhen.__file__).parent)!r}]
"""
"""The package without all that it imports: for programs that need a module of it, and start in a tenth of the time."""


def python(
    code: str, cache: Path | str, mode: str, whole: bool = True, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, with its own folder of loops; `whole`: with all of the package."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "EVERWHEN_COMPILE": mode, "PYTHONPATH": SOURCES, **more}
    program = ("" if whole else SHORT) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def choose(mode: str) -> None:
        monkeypatch.setattr(loops._choice, "mode", mode, raising=False)

    yield choose


# -- cold start ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writable", [True, False])
def test_the_first_answer_needs_no_compiler(tmp_path: Path, writable: bool) -> None:
    (tmp_path / "bids.jsonl").write_text(BIDS)
    (tmp_path / "best.sql").write_text(BEST)
    cache = tmp_path / "cache"
    if not writable:
        cache.write_text("a file where a folder should be")
    done = python(
        f"""
        import sys, time
        from everwhen.cli.program import main
        status = main(["run", "{tmp_path}/best.sql", "--in", "Bid={tmp_path}/bids.jsonl", "--engine", "local",
                       "--consistency", "strong"])
        print(time.process_time(), file=sys.stderr)
        sys.exit(status)
        """,
        cache,
        "auto",
        NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator",
    )
    assert done.returncode == 0, done.stderr
    elements = [json.loads(line) for line in done.stdout.splitlines()]
    said = [(e["op"], e["vs"], e["ve"], *e["row"].values()) for e in elements if e["op"] != "cti"]
    assert sorted(said) == sorted(ANSWER)
    assert float(done.stderr.split()[-1]) < COLD_S
    assert not list(tmp_path.rglob("*.nbc")), "nothing was compiled"


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bids.jsonl").write_text(BIDS)
    (tmp_path / "best.sql").write_text(BEST)
    done = python(
        f"""
        import sys
        from everwhen.cli.program import main
        sys.exit(main(["run", "{tmp_path}/best.sql", "--in", "Bid={tmp_path}/bids.jsonl", "--engine", "local"]))
        """,
        tmp_path / "cache",
        "sometimes",
    )
    assert done.returncode == 1
    assert "EVERWHEN_COMPILE is 'sometimes'; it must be one of auto, eager, never" in done.stderr
    assert "Traceback" not in done.stderr


# -- the same results ----------------------------------------------------------------------------------------------


@njit(cache=False)
def _scrambled(rows: Any, out: Any, seed: int = 3) -> Any:
    h = np.uint64(0)
    for i in range(len(rows)):
        h = mixed(h ^ np.uint64(rows[i]), np.uint64(seed))
        out[i] = np.int64(h) * 3
    order = np.argsort(rows)
    return order, len(rows) > 2, out[0] % 7, h


@njit(cache=False)
def _bytes(data: Any, a: int, b: int) -> Any:
    word = word_at(data, a, b)
    store(data, b, load(data, a))
    return word, lowest_bit(word | np.uint64(1 << 40))


def _typed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    return [_typed(item) for item in value] if isinstance(value, tuple) else (type(value), value)


@pytest.mark.parametrize("seed", range(4))
def test_wrapping_sorting_and_types_are_those_of_compiled_code(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    rows = numbers.integers(-4, 4, 40) << np.int64(60)
    out, other = np.zeros((2, 40), np.int64)
    compiled, plain = _scrambled(rows, out), interpreted(_scrambled)(rows, other)
    assert _typed(compiled) == _typed(plain)
    assert out.tolist() == other.tolist()
    data = numbers.integers(0, 256, 64).astype(np.uint8)
    again = data.copy()
    assert _typed(_bytes(data, 3, 3 + 2 * seed)) == _typed(interpreted(_bytes)(again, 3, 3 + 2 * seed))
    assert data.tolist() == again.tolist()


@pytest.mark.property
def test_the_operators_meet_the_oracle_when_interpreted(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "EVERWHEN_COMPILE": "never",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "EVERWHEN_EXAMPLES": "5",
    }
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    oracle = str(tests / "operators" / "test_operators_oracle.py")
    options = ["-q", "-n", "0", "-o", f"cache_dir={tmp_path}/pytest", "-k", "current"]  # every plan, one policy
    command = [sys.executable, "-m", "pytest", *options, oracle]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tests.parent)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert not list(tmp_path.rglob("*.nbc"))


# -- when ----------------------------------------------------------------------------------------------------------


def _loop() -> Any:
    def total(items):  # type: ignore[no-untyped-def]
        s = 0
        for i in range(len(items)):
            s += items[i]
        return s

    return njit(cache=False)(total)


def test_a_loop_is_interpreted_until_it_has_earned_its_compilation(choose: Any) -> None:
    choose("auto")
    total, items = _loop(), np.arange(10)
    assert total(items) == 45 and not total.overloads
    assert 0 < total.account.spent < 0.05
    total.account.spent = 100.0
    assert total(items) == 45 and len(total.overloads) == 1
    assert total.account.spent == 0.0, "for other types it begins anew"
    assert total(items.astype(np.float64)) == 45.0 and len(total.overloads) == 1


def test_a_call_over_long_arrays_is_compiled_first(choose: Any) -> None:
    choose("auto")
    total = _loop()
    items = np.ones(10_000_000, np.int8)
    assert total(items) == 10_000_000 and len(total.overloads) == 1


def test_arrays_in_tuples_count_as_well(choose: Any) -> None:
    def total(items):  # type: ignore[no-untyped-def]
        s = 0
        for i in range(len(items[1][0])):
            s += items[1][0][i]
        return s

    choose("auto")
    total = njit(cache=False)(total)
    assert total((1, (np.ones(10, np.int8), 2))) == 10 and not total.overloads
    assert total((1, (np.ones(10_000_000, np.int8), 2))) == 10_000_000 and len(total.overloads) == 1


def test_long_arrays_of_which_little_is_read_do_not_count(choose: Any) -> None:
    account = Account("a loop", "", None)
    assert account.expected(1_000) == pytest.approx(0.01)
    account.spend(0.001, 1_000_000)
    assert account.expected(2_000_000) == pytest.approx(0.006)


def test_modes_compile_at_once_or_never(choose: Any) -> None:
    items = np.arange(10)
    choose("eager")
    total = _loop()
    assert total(items) == 45 and len(total.overloads) == 1
    choose("never")
    total = _loop()
    total.account.spend(1e9, 1)
    assert total(items) == 45 and not total.overloads


def test_errors_are_the_same(choose: Any) -> None:
    def refuse(items):  # type: ignore[no-untyped-def]
        raise ValueError("no items")

    seen = []
    for mode in ("eager", "never"):
        choose(mode)
        with pytest.raises(ValueError) as bad:
            njit(cache=False)(refuse)(np.arange(3))
        seen.append(bad.value.args)
    assert seen[0] == seen[1] == ("no items",)


# -- between processes ---------------------------------------------------------------------------------------------


def test_what_another_process_has_compiled_is_loaded(tmp_path: Path) -> None:
    code = """
        import numpy as np
        from everwhen.containers.sort_by_time import _counted
        order = np.empty(3, np.int64)
        _counted(np.array([5, 3, 4]), 3, np.zeros(3, np.int64), order)
        print(order.tolist(), len(_counted.overloads), sum(_counted.stats.cache_hits.values()))
    """
    said = [python(code, tmp_path, mode, whole=False).stdout.strip() for mode in ("auto", "eager", "auto", "never")]
    assert said == ["[1, 2, 0] 0 0", "[1, 2, 0] 1 0", "[1, 2, 0] 1 1", "[1, 2, 0] 0 0"]


def test_a_loop_that_another_process_compiles_is_interpreted_meanwhile(tmp_path: Path) -> None:
    other = python(
        """
        import subprocess, sys
        import numpy as np
        from everwhen.compiled.claims import Claim
        from everwhen.containers.sort_by_time import _counted
        def run():
            code = '''if True:
            import numpy as np
            from everwhen.containers.sort_by_time import _counted
            order = np.empty(3, np.int64)
            _counted(np.array([5, 3, 4]), 3, np.zeros(3, np.int64), order)
            print(order.tolist(), len(_counted.overloads))
            '''
            return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        with Claim(_counted._cache.cache_path, _counted._name):
            print(run())
        print(run())
        """,
        tmp_path,
        "eager",
        whole=False,
    )
    assert other.stdout.splitlines() == ["[1, 2, 0] 0", "[1, 2, 0] 1"], other.stderr


def test_a_claim_is_for_one_and_ends_with_its_process(tmp_path: Path) -> None:
    code = f"""
        from everwhen.compiled.claims import Claim
        claim = Claim({str(tmp_path)!r}, "a loop")
        print(claim.take(), Claim({str(tmp_path)!r}, "another loop").take())
    """
    with Claim(str(tmp_path), "a loop"):
        assert python(code, tmp_path, "auto", whole=False).stdout.split() == ["False", "True"]
    assert python(code, tmp_path, "auto", whole=False).stdout.split() == ["True", "True"]
    claim = Claim(str(tmp_path), "a loop")
    assert claim.take(), "the process that had it has ended without giving it back"
    claim.release()


def test_seconds_are_remembered_by_the_next_process(tmp_path: Path) -> None:
    code = """
        from everwhen.compiled.accounts import Account
        account = Account("a loop", {digest!r}, {folder!r})
        print(account.spent)
        account.spend({seconds}, 10)
    """
    said = [
        python(
            code.format(digest=digest, folder=str(tmp_path), seconds=seconds), tmp_path, "auto", whole=False
        ).stdout.strip()
        for digest, seconds in (("one", 1.5), ("one", 0.001), ("one", 2.0), ("one", 0.0), ("two", 1.0))
    ]
    assert said == ["0.0", "1.5", "1.5", "3.5", "0.0"]
    (tmp_path / "interpreted.json").write_text("{]")
    assert Account("a loop", "two", str(tmp_path)).spent in (0.0, 1.0), "a damaged file is none"


# -- code ----------------------------------------------------------------------------------------------------------


def test_a_loop_on_disk_is_known_by_all_the_code_in_it() -> None:
    def version(constant: int) -> Any:
        names: dict[str, Any] = {"njit": njit, "STEP": constant}
        exec("@njit(cache=False)\ndef inner(x):\n    return x + STEP\n", names)
        exec("@njit(cache=False)\ndef outer(x):\n    return inner(x) * 2\n", names)
        return names["outer"].py_func

    assert code_digest(version(1)) == code_digest(version(1)) != code_digest(version(2))
    assert code_size(version(1)) > len(version(1).__code__.co_code)


def test_a_loop_on_disk_is_known_by_the_fields_of_tuples_that_it_makes() -> None:
    def version(fields: str) -> Any:
        names: dict[str, Any] = {"njit": njit, "Two": namedtuple("Two", fields)}
        exec("@njit(cache=False)\ndef made(x, y):\n    return Two(x, y).first\n", names)
        return names["made"].py_func

    assert code_digest(version("first second")) == code_digest(version("first second"))
    assert code_digest(version("first second")) != code_digest(version("second first"))


def test_a_loop_on_disk_is_known_by_the_fields_of_tuples_that_it_takes(tmp_path: Path) -> None:
    """Compiled code knows fields by their places: with others in these places it is not to be used again."""

    def said(name: str, fields: str) -> str:
        (tmp_path / "tuples.py").write_text(
            f"import collections\n{name} = collections.namedtuple({name!r}, {fields!r})\n"
        )
        path = os.pathsep.join([SOURCES, str(tmp_path)])
        code = f"import reader, tuples; print(reader.read(tuples.{name}(first=1, second=5)))"
        done = python(code, tmp_path / "cache", "eager", False, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    loop = "@njit()\ndef read(two):\n    return two.second - two.first\n"
    (tmp_path / "reader.py").write_text("from everwhen.compiled.njit import njit\n" + loop)
    assert said("Two", "first second") == "4"
    assert said("Two", "second first") == "4"
    assert said("Pair", "second first") == "4", "an index that names a class which is gone is no error"


def _is_truth(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )


def _computes_with_truth(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.Invert) and _is_truth(node.operand)
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
        and _is_truth(node.left)
        and _is_truth(node.right)
    )


def test_no_loop_adds_truth_values() -> None:
    """Of two comparisons Numba makes a number, 0 to 2; NumPy, and so an interpreted loop, makes a truth value."""
    assert _computes_with_truth(ast.parse("(a == t) + (b == t) > 1", mode="eval").body.left)  # type: ignore[attr-defined]
    found = [
        f"{path.relative_to(SOURCES)}:{inner.lineno}"
        for path in Path(SOURCES).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and any("loop" in d or "njit" in d for d in map(ast.unparse, node.decorator_list))
        for inner in ast.walk(node)
        if _computes_with_truth(inner)
    ]
    assert found == []


def test_every_compiled_function_of_the_package_is_a_loop() -> None:
    found = [
        (module, name)
        for module, content in list(sys.modules.items())
        if module.startswith("everwhen.")
        for name, value in vars(content).items()
        if hasattr(value, "py_func") and not isinstance(value, Loop)
    ]
    assert found == []


class Inner(NamedTuple):
    items: np.ndarray
    factor: int


class Outer(NamedTuple):
    first: int
    inner: Inner
    items: np.ndarray


@loop_of(outer=Outer, inner=Inner)
def _weighed(outer, more, inner):
    return outer.first + outer.inner.factor * outer.inner.items[0] + outer.items[1] + more * inner.items[1]


@loop
def _calls(outer, inner):
    return _weighed(outer, 100, inner)


@pytest.mark.parametrize("mode", ["eager", "never"])
def test_a_loop_is_entered_with_the_items_of_its_named_tuples(choose: Any, mode: str) -> None:
    choose(mode)
    inner = Inner(np.array([5, 7]), 10)
    outer = Outer(1, inner, np.array([2, 3]))
    assert _weighed(outer, 100, inner) == 1 + 50 + 3 + 700
    assert _calls(outer, inner) == 1 + 50 + 3 + 700, "compiled code calls the loop itself"
    if mode == "eager":
        entry = type(_weighed).__dict__["__call__"].__wrapped__.__globals__["_entry"]
        (types,) = entry.overloads
        assert len(types) == 4 + 1 + 2, "arrays and numbers only"
