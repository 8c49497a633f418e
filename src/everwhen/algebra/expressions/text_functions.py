"""Scalar functions of text.  Positions and lengths count characters (code points), from 1.

With constant patterns and positions pyarrow's kernels do the work; with computed ones, and for functions that have no
kernel, the definition runs row by row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from everwhen.algebra.expressions.compute import Compiled, Kernel, Rule, apply, coerce, row_by_row, unify
from everwhen.algebra.expressions.scalar_function import ScalarFunction, constant_value, require
from everwhen.errors import EvaluationError, QueryError


def _texts(args: Sequence[Compiled], where: str) -> tuple[pa.DataType, list[Compiled]]:
    require(args, where, "text (cast other types to string)", "string")
    target, found = unify(args, where)
    return (pa.string() if pa.types.is_null(target) else target), found


def _on_text(kernel: Kernel) -> Rule:
    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        target, found = _texts(args, where)
        return apply(target, kernel, [coerce(arg, target) for arg in found], where)

    return rule


def _known(args: Sequence[Compiled]) -> list[Any] | None:
    """The values of the arguments after the first, if all are constants and none is null."""
    values = [arg.constant.as_py() if arg.constant is not None else None for arg in args[1:]]
    return None if any(value is None for value in values) else values


def _entry(
    usage: str,
    kernel: Callable[..., Kernel | None],
    meaning: Callable[..., Any],
    *counts: int,
    integers: Sequence[int] = (),
    result: pa.DataType | None = None,
) -> ScalarFunction:
    """A function whose arguments after the first are options of the kernel that `kernel(*options)` makes.

    `integers` are the positions of arguments that are numbers; `result` None means the type of the text.
    """

    def rule(args: Sequence[Compiled], where: str) -> Compiled:
        target, _ = _texts([arg for i, arg in enumerate(args) if i not in integers], where)
        require([arg for i, arg in enumerate(args) if i in integers], where, "a whole number", "integer")
        known = _known(args)
        fast = None if known is None else kernel(*known)
        type_ = result if result is not None else target
        text = coerce(args[0], target)
        if fast is not None:
            return apply(type_, fast, [text], where)
        return apply(type_, row_by_row(meaning, type_), [text, *args[1:]], where)

    return ScalarFunction(usage, rule, meaning, min(counts), max(counts))


_ONE_LETTER: Final = {"ß": "ẞ", "İ": "i"}


def _each(function: Callable[[str], str]) -> Callable[[str], str]:
    """Letter by letter, so that a text keeps its length: Unicode's simple case mapping."""

    def change(letter: str) -> str:
        changed = function(letter)
        if len(changed) == 1:
            return changed
        capital = letter.title()
        return _ONE_LETTER.get(letter, capital if len(capital) == 1 else letter)

    return lambda text: "".join(map(change, text))


def _length(args: Sequence[Compiled], where: str) -> Compiled:
    target, found = _texts(args, where)
    options = pc.CastOptions(target_type=pa.int64())
    return apply(pa.int64(), lambda x: pc.cast(pc.utf8_length(x), options=options), [coerce(found[0], target)], where)


def _concat(args: Sequence[Compiled], where: str) -> Compiled:
    target, found = _texts(args, where)
    empty = pa.scalar("", target)
    found = [coerce(arg, target) for arg in found]
    return apply(target, lambda *texts: pc.binary_join_element_wise(*texts, empty), found, where)


# -- parts of a text ---------------------------------------------------------------------------------------------------


def substr(text: str, start: int, length: int | None = None) -> str:
    """`length` characters from the `start`-th on; a negative start counts from the end."""
    if length is not None and length < 0:
        raise EvaluationError(f"a substring cannot have {length} characters")
    begin = start - 1 if start >= 0 else len(text) + start
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


def _slice(start: int, length: int | None = None) -> Kernel | None:
    """Python's slice for SQL's start and length; the place before the first character counts as one."""
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else start
    if start == 0:
        end = None if length is None else max(length - 1, 0)
    else:
        end = None if length is None or begin < 0 <= begin + length else begin + length
    return lambda x: pc.utf8_slice_codeunits(x, begin, end)


def _left(n: int) -> Kernel:
    return lambda x: pc.utf8_slice_codeunits(x, 0, max(n, 0))


def _right(n: int) -> Kernel:
    return lambda x: pc.utf8_slice_codeunits(x, -n, None) if n > 0 else pc.utf8_slice_codeunits(x, 0, 0)


def _replace(old: str, new: str) -> Kernel | None:
    return (lambda x: pc.replace_substring(x, old, new)) if old else (lambda x: x)


def split_part(text: str, separator: str, n: int) -> str:
    """The n-th part between separators, counted from 1, from the end if negative; empty if there is none."""
    parts = text.split(separator) if separator else [text]
    at = n - 1 if n > 0 else len(parts) + n
    return parts[at] if n and 0 <= at < len(parts) else ""


# -- longer texts ------------------------------------------------------------------------------------------------------

_LONGEST: Final = 1 << 20


def _require_length(characters: int) -> None:
    if characters > _LONGEST:
        raise EvaluationError(f"a text of {characters:,} characters is too long; at most {_LONGEST:,} are made")


def repeat(text: str, n: int) -> str:
    """The text so many times; empty if that is none."""
    _require_length(len(text) * max(n, 0))
    return text * max(n, 0)


def lpad(text: str, n: int, fill: str = " ") -> str:
    """n characters: the text behind as much of repeated `fill` as it takes, or the first n of it."""
    return _fill(text, n, fill) + text[: max(n, 0)]


def rpad(text: str, n: int, fill: str = " ") -> str:
    """n characters: the text before as much of repeated `fill` as it takes, or the first n of it."""
    return text[: max(n, 0)] + _fill(text, n, fill)


def _fill(text: str, n: int, fill: str) -> str:
    missing = max(n - len(text), 0) if fill else 0
    _require_length(missing)
    return (fill * (missing // max(len(fill), 1) + 1))[:missing]


def _padding(kernel: Callable[..., pa.Array]) -> Callable[..., Kernel | None]:
    def with_width(n: int, fill: str = " ") -> Kernel | None:
        if len(fill) != 1 or not 0 <= n <= _LONGEST:
            return None
        return lambda x: pc.utf8_slice_codeunits(kernel(x, n, fill), 0, n)

    return with_width


# -- tests and patterns ------------------------------------------------------------------------------------------------


def like(text: str, pattern: str) -> bool:
    """SQL's LIKE: % is any text, _ any character, a backslash takes the next one literally."""
    return re.fullmatch(_like_regex(pattern), text, re.DOTALL) is not None


def _like_regex(pattern: str) -> str:
    found, letters = "", iter(pattern)
    for letter in letters:
        if letter == "\\":
            found += re.escape(next(letters, "\\"))
        else:
            found += {"%": ".*", "_": "."}.get(letter, re.escape(letter))
    return found


def _match_like(x: Any, pattern: str) -> Any:
    """By pyarrow's LIKE, but for a backslash: where it takes short cuts, it forgets to unescape the pattern."""
    if "\\" in pattern:
        return pc.match_substring_regex(x, rf"(?s)\A{_like_regex(pattern)}\z")
    return pc.match_like(x, pattern)


def _regex(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise QueryError(f"the regular expression {pattern!r} is wrong: {error}") from None


def _regexp_matches(pattern: str) -> Kernel:
    _regex(pattern)
    return lambda x: pc.match_substring_regex(x, pattern)


def regexp_extract(text: str, pattern: str, group: int = 0) -> str:
    """The first match, or its n-th group; empty if there is none."""
    found = re.search(pattern, text)
    return "" if found is None else found[group] or ""


def _regexp_extract(args: Sequence[Compiled], where: str) -> Compiled:
    target, _ = _texts(args[:2], where)
    pattern = _regex(constant_value(args[1], where, "a regular expression", lambda _: True))
    group = 0
    if len(args) == 3:
        require(args[2:], where, "a group's number", "integer")
        allowed = f"a group from 0 to {pattern.groups}"
        group = constant_value(args[2], where, allowed, lambda n: 0 <= n <= pattern.groups)
    return apply(target, _extracting(pattern, group, target), [coerce(args[0], target)], where)


def _extracting(pattern: re.Pattern[str], group: int, target: pa.DataType) -> Kernel:
    """`regexp_extract` of one pattern; Python's expressions are not those of Arrow, so text by text."""
    search = pattern.search

    def kernel(texts: pa.Array) -> pa.Array:
        found = []
        for text in texts.to_pylist():
            match = None if text is None else search(text)
            found.append(None if text is None else "" if match is None else match[group] or "")
        return pa.array(found, target)

    return kernel


def regexp_replace(text: str, pattern: str, replacement: str, flags: str = "g") -> str:
    """Every match replaced; `$1` or `\\1` is what its first group matched, `$0` all of it, `\\$` a dollar."""
    return re.sub(pattern, partial(_expanded, _pieces(replacement)), text)


_PIECE: Final = re.compile(r"\\([\\$])|[$\\](\d)")


def _pieces(replacement: str) -> list[str | int]:
    """Texts, and the numbers of groups between them."""
    found: list[str | int] = []
    at = 0
    for piece in _PIECE.finditer(replacement):
        found += [replacement[at : piece.start()], piece[1] if piece[2] is None else int(piece[2])]
        at = piece.end()
    return [*found, replacement[at:]]


def _expanded(pieces: Sequence[str | int], match: re.Match[str]) -> str:
    return "".join(each if isinstance(each, str) else match[each] or "" for each in pieces)


def _regexp_replace(args: Sequence[Compiled], where: str) -> Compiled:
    target, _ = _texts(args, where)
    pattern = _regex(constant_value(args[1], where, "a regular expression", lambda _: True))
    wanted = f"a replacement with groups from 0 to {pattern.groups}"
    pieces = _pieces(constant_value(args[2], where, wanted, lambda text: _most(_pieces(text)) <= pattern.groups))
    if len(args) == 4:
        constant_value(args[3], where, "'g' or nothing, since every match is replaced,", lambda flags: flags == "g")
    replaced = partial(pattern.sub, partial(_expanded, pieces))

    def kernel(texts: pa.Array) -> pa.Array:
        return pa.array([None if text is None else replaced(text) for text in texts.to_pylist()], target)

    return apply(target, kernel, [coerce(args[0], target)], where)


def _most(pieces: Sequence[str | int]) -> int:
    return max((each for each in pieces if isinstance(each, int)), default=0)


def _matches(text: str, pattern: str) -> bool:
    return re.search(pattern, text) is not None


def _no_kernel(*_: Any) -> None:
    """No pyarrow kernel does this."""


def _trimming(name: str, kernel: Kernel, strip: Callable[..., str]) -> ScalarFunction:
    def with_characters(characters: str = " ") -> Kernel:
        return lambda x: kernel(x, characters=characters)

    def meaning(text: str, characters: str = " ") -> str:
        return strip(text, characters)

    return _entry(f"{name}(text [, characters])", with_characters, meaning, 1, 2)


def _test(usage: str, kernel: Kernel, meaning: Callable[..., bool]) -> ScalarFunction:
    def with_pattern(pattern: str) -> Kernel:
        return lambda x: kernel(x, pattern)

    return _entry(usage, with_pattern, meaning, 2, result=pa.bool_())


TEXT_FUNCTIONS: Final = (
    ScalarFunction("lower(text)", _on_text(pc.utf8_lower), _each(str.lower)),
    ScalarFunction("upper(text)", _on_text(pc.utf8_upper), _each(str.upper)),
    ScalarFunction("reverse(text)", _on_text(pc.utf8_reverse), lambda text: text[::-1]),
    ScalarFunction("length(text)", _length, len),
    ScalarFunction("concat(text, …)", _concat, lambda *texts: "".join(texts), 1, None),
    _trimming("trim", pc.utf8_trim, str.strip),
    _trimming("ltrim", pc.utf8_ltrim, str.lstrip),
    _trimming("rtrim", pc.utf8_rtrim, str.rstrip),
    _entry("substr(text, start [, length])", _slice, substr, 2, 3, integers=(1, 2)),
    _entry("left(text, n)", _left, lambda text, n: text[: max(n, 0)], 2, integers=(1,)),
    _entry("right(text, n)", _right, lambda text, n: text[-n:] if n > 0 else "", 2, integers=(1,)),
    _entry("replace(text, old, new)", _replace, lambda text, old, new: text.replace(old, new) if old else text, 3),
    _entry("split_part(text, separator, n)", _no_kernel, split_part, 3, integers=(2,)),
    _entry("repeat(text, n)", _no_kernel, repeat, 2, integers=(1,)),
    _entry("lpad(text, n [, fill])", _padding(pc.utf8_lpad), lpad, 2, 3, integers=(1,)),
    _entry("rpad(text, n [, fill])", _padding(pc.utf8_rpad), rpad, 2, 3, integers=(1,)),
    _entry("position(text, part)", _no_kernel, lambda text, part: text.find(part) + 1, 2, result=pa.int64()),
    _test("starts_with(text, start)", pc.starts_with, str.startswith),
    _test("ends_with(text, end)", pc.ends_with, str.endswith),
    _test("contains(text, part)", pc.match_substring, str.__contains__),
    _test("like(text, pattern)", _match_like, like),
    _entry("regexp_matches(text, regex)", _regexp_matches, _matches, 2, result=pa.bool_()),
    ScalarFunction("regexp_extract(text, regex [, group])", _regexp_extract, regexp_extract, 2, 3),
    ScalarFunction("regexp_replace(text, regex, new [, 'g'])", _regexp_replace, regexp_replace, 3, 4),
)
