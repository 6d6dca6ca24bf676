"""Checks of arguments: a value of a wrong type is refused with its name and the rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat, SupportsIndex

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ArgumentRule(NamedTuple):
    """A rule for an argument.

    Attributes:
        sentence: what the argument must be.
        holds: whether a value is that.
    """

    sentence: str
    holds: Callable[[Any], bool]


def _is_list(value: object) -> bool:
    is_one = isinstance(value, str | bytes | Mapping) or callable(value)
    return isinstance(value, Iterable) and not is_one


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number, NumPy's among them."""
    if isinstance(value, bool) or getattr(value, "shape", ()) != ():
        return False
    return isinstance(value, SupportsIndex)


def _is_number(value: object) -> bool:
    is_single = not isinstance(value, str | bytes | bool) and getattr(value, "shape", ()) == ()
    return is_single and isinstance(value, SupportsFloat)


FLAG = ArgumentRule("True or False", lambda value: isinstance(value, bool))
LIST = ArgumentRule("a list", _is_list)
NUMBER = ArgumentRule("a number", _is_number)
PATH = ArgumentRule("a path", lambda value: isinstance(value, str | PathLike))
SECONDS = ArgumentRule("a number above 0", lambda value: _is_number(value) and float(value) > 0)
TABLE = ArgumentRule("a dict", lambda value: isinstance(value, Mapping))
TEXT = ArgumentRule("a text", lambda value: isinstance(value, str))
WHOLE = ArgumentRule("a whole number", _is_whole)


def require(rule: ArgumentRule, **arguments: object) -> None:
    """Refuse the first argument that breaks a rule.

    Raises:
        ConfigurationError: names argument, value and rule.
    """
    for name, value in arguments.items():
        if not rule.holds(value):
            raise ConfigurationError(f"{name} = {value!r:.80}: must be {rule.sentence}")


def require_each(rule: ArgumentRule, name: str, values: Iterable[object]) -> None:
    """Refuse the first value of a list that breaks a rule.

    Raises:
        ConfigurationError: names argument, position, value and rule.
    """
    for place, value in enumerate(values):
        require(rule, **{f"{name}[{place}]": value})


def require_or_none(rule: ArgumentRule, **arguments: object) -> None:
    """Refuse the first argument that is neither None nor keeps a rule.

    Raises:
        ConfigurationError: names argument, value and rule.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    require(rule, **given)


def first_and_last(rounds: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last round that a list of two names.

    Raises:
        ConfigurationError: it is no list of two numbers.
    """
    require(LIST, rounds=rounds)
    require_each(WHOLE, "rounds", rounds)
    if len(rounds) != 2:
        raise ConfigurationError(f"rounds = {rounds!r:.80}: must be the first and the last")
    return int(rounds[0]), int(rounds[1])
