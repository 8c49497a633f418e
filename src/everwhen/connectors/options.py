"""The options of a connector: declared by name, with type, default and help; checked by name.

    >>> declared = (Option("topic", "text", "what is read", required=True), Option("from", "text", default="earliest"))
    >>> checked("kafka", declared, (), {"topic": "bids"}).text("from")
    'earliest'
    >>> checked("kafka", declared, (), {"topik": "bids"})
    Traceback (most recent call last):
    ...
    everwhen.connectors.options.OptionError: kafka has no option 'topik'; did you mean 'topic'?

Positional arguments go to the options in the order of their declaration.  Names are compared without regard to case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from everwhen.core.time import ticks
from everwhen.errors import QueryError

Type = Literal["text", "whole", "number", "boolean", "duration", "names", "texts"]
_ANY: Final = ".*"
_WORDS: Final[Mapping[Type, str]] = {
    "text": "a text, as 'abc'",
    "whole": "a whole number",
    "number": "a number",
    "boolean": "TRUE or FALSE",
    "duration": "a length of time, as '5 s'",
    "names": "names of columns, as 'a, b'",
    "texts": "texts by name",
}
_TRUTH: Final = {"true": True, "false": False}


class OptionError(QueryError):
    """An option is wrong.  `option`: its name as it was written; "" if one is missing; None if it has no name.
    `place`: its place among the positional arguments, if it is one of them."""

    def __init__(self, problem: str, option: str | None = None, place: int | None = None) -> None:
        super().__init__(problem)
        self.option, self.place = option, place


@dataclass(frozen=True, slots=True)
class Option:
    """One option.  `least`: the smallest number.  `choices`: the texts that are possible.  `secret`: it is never shown.
    `free`: it says how a system is reached, not what is read or written, so it may change from start to start.

    A name that ends in `.*`, of type `texts`, takes all options of that beginning, such as 'properties.acks'.
    """

    name: str
    type: Type
    help: str = ""
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    secret: bool = False
    free: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def takes_all(self) -> bool:
        """Whether it stands for all options with its beginning."""
        return self.name.endswith(_ANY)


@dataclass(frozen=True)
class Options(Mapping[str, Any]):
    """The values of all declared options; one that was not given has its default."""

    of: str
    values_: Mapping[str, Any]
    declared: tuple[Option, ...]

    def __getitem__(self, name: str) -> Any:
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)

    def text(self, name: str) -> str:
        """An option that is a text and required, or has a default."""
        return str(self.values_[name])

    def maybe(self, name: str) -> str | None:
        """An option that is a text, if it was given."""
        found = self.values_[name]
        return None if found is None else str(found)

    def whole(self, name: str) -> int:
        """An option that is a whole number."""
        return int(self.values_[name])

    def number(self, name: str) -> float:
        """An option that is a number."""
        return float(self.values_[name])

    def truth(self, name: str) -> bool:
        """An option that is true or false."""
        return bool(self.values_[name])

    def seconds(self, name: str) -> float:
        """An option that is a length of time, in seconds."""
        return ticks(self.values_[name], "1ns") / 1e9

    def names(self, name: str) -> tuple[str, ...]:
        """An option that names columns."""
        return tuple(self.values_[name] or ())

    def texts(self, name: str) -> dict[str, str]:
        """The options of one beginning, without it."""
        return dict(self.values_[name] or {})

    @property
    def lasting(self) -> str:
        """As text, without what may change from start to start."""
        return self._shown({each.name for each in self.declared if each.free})

    def __str__(self) -> str:
        return self._shown(set())

    def _shown(self, without: set[str]) -> str:
        hidden = {each.name for each in self.declared if each.secret}
        there = {name: value for name, value in self.values_.items() if value is not None and name not in without}
        shown = (f"{name} = {'…' if name in hidden else value!r}" for name, value in there.items())
        return f"{self.of}({', '.join(shown)})"


def checked(of: str, declared: Sequence[Option], arguments: Sequence[Any], named: Mapping[str, Any]) -> Options:
    """The options of a connector as they were written, checked; `OptionError` says which one is wrong."""
    plain = [each for each in declared if not each.takes_all]
    if len(arguments) > len(plain):
        most = f"at most {len(plain)}" if plain else "none"
        raise OptionError(f"{of} takes {most} arguments without a name, not {len(arguments)}", place=len(plain))
    found: dict[str, Any] = {}
    for place, (option, value) in enumerate(zip(plain, arguments, strict=False)):
        found[option.name] = _typed(of, option, value, option.name, place)
    for written, value in named.items():
        option_, rest = _declared(of, declared, written)
        if option_.takes_all:
            found.setdefault(option_.name, {})[rest] = _typed(of, option_, value, written)
            continue
        if option_.name in found:
            raise OptionError(f"{of}: the option {option_.name!r} is given twice", written)
        found[option_.name] = _typed(of, option_, value, written)
    for option in declared:
        if option.required and option.name not in found:
            raise OptionError(f"{of} needs the option {option.name!r}: {option.help or _WORDS[option.type]}", "")
    return Options(of, {each.name: found.get(each.name, each.default) for each in declared}, tuple(declared))


def _declared(of: str, declared: Sequence[Option], written: str) -> tuple[Option, str]:
    wanted = written.lower()
    for option in declared:
        if wanted in (option.name.lower(), *(alias.lower() for alias in option.aliases)):
            return option, ""
    for option in declared:
        begin = option.name[: -len(_ANY)].lower() + "."
        if option.takes_all and wanted.startswith(begin):
            return option, written[len(begin) :]
    near = difflib.get_close_matches(wanted, [option.name.lower() for option in declared], n=1)
    there = f"there is {', '.join(option.name for option in declared)}" if declared else "it has none"
    raise OptionError(f"{of} has no option {written!r}; " + (f"did you mean {near[0]!r}?" if near else there), written)


def _typed(of: str, option: Option, value: Any, written: str, place: int | None = None) -> Any:
    """A value as the type wants it.  Texts are read as numbers and truths too, as in WITH ('rate' = '100')."""
    try:
        found = _read(option.type, value)
    except (ValueError, QueryError):
        raise OptionError(
            f"{of}: the option {option.name!r} is {_WORDS[option.type]}, not {value!r}", written, place
        ) from None
    if option.choices and found not in option.choices:
        lower = {choice.lower(): choice for choice in option.choices}
        if isinstance(found, str) and found.lower() in lower:
            return lower[found.lower()]
        raise OptionError(
            f"{of}: the option {option.name!r} is one of {', '.join(option.choices)}, not {value!r}", written, place
        )
    if option.least is not None and found < option.least:
        raise OptionError(f"{of}: the option {option.name!r} is at least {option.least:g}, not {value}", written, place)
    return found


def _read(type_: Type, value: Any) -> Any:
    truth = isinstance(value, bool)
    if type_ == "boolean":
        return value if truth else _TRUTH.get(str(value).lower()) if str(value).lower() in _TRUTH else _no()
    if truth or value is None:
        return _no()
    if type_ in ("text", "texts"):
        return value if isinstance(value, str) else _no() if type_ == "text" else str(value)
    if type_ == "whole":
        return int(str(value))
    if type_ == "number":
        return float(value)
    if type_ == "duration":
        ticks(value if isinstance(value, str) else _no(), "1ns")
        return value
    names = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else _no()
    return names if all(names) else _no()


def _no() -> Any:
    raise ValueError
