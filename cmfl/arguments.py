"""Checks of Python arguments, and the sentence that names a missing extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, SupportsFloat, SupportsIndex, TypeVar

from ledger.io.extras import missing_extra
from ledger.io.home import naming
from ledger.protocol.errors import CmflError, ConfigurationError

if TYPE_CHECKING:
    from ledger.protocol.types import Digest


@contextmanager
def naming_extras() -> Iterator[None]:
    """Name the extra whose absence makes an import fail; also a decorator."""
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = missing_extra(error)
        if sentence is None:
            raise
        raise ConfigurationError(sentence) from error


P = ParamSpec("P")
T = TypeVar("T")


class ArgumentRule(NamedTuple):
    """A rule for an argument, and the sentence of what the argument must be."""

    sentence: str
    holds: Callable[[Any], bool]


def _is_list(value: object) -> bool:
    is_one = isinstance(value, str | bytes | Mapping) or callable(value)
    return isinstance(value, Iterable) and not is_one


def _is_whole(value: object) -> bool:
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
    """Refuse the first argument that breaks a rule."""
    for name, value in arguments.items():
        if not rule.holds(value):
            raise ConfigurationError(f"{name} = {value!r:.80}: must be {rule.sentence}")


def require_each(rule: ArgumentRule, name: str, values: Iterable[object]) -> None:
    """Refuse the first value of a list that breaks a rule."""
    for place, value in enumerate(values):
        require(rule, **{f"{name}[{place}]": value})


_RULES: dict[str, tuple[ArgumentRule, ArgumentRule | None]] = {
    "bool": (FLAG, None),
    "float": (NUMBER, None),
    "int": (WHOLE, None),
    "str": (TEXT, None),
    **dict.fromkeys(("str | Path", "Run | str | Path", "Proof | str | Path"), (PATH, None)),
    **dict.fromkeys(("Sequence[Part]", "Sequence[Part | None]"), (LIST, None)),
    **dict.fromkeys(("Sequence[int]", "Iterable[int]"), (LIST, WHOLE)),
    "Sequence[str]": (LIST, TEXT),
    "Sequence[str | Path]": (LIST, PATH),
    "Mapping[str, object]": (TABLE, None),
    "Mapping[str, Sequence[object]]": (TABLE, None),
    "Mapping[int, bytes]": (TABLE, None),
}
"""The rule of an argument, and that of each element of a list, by the annotation."""


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check arguments that have a known annotation, and name an extra that the function lacks.

    An error has no traceback of ours. The signature lists the keywords of `**name: Unpack[...]`,
    which notebooks complete.
    """
    own = signature(function)
    rules = {
        parameter.name: (rule, str(parameter.annotation))
        for parameter in own.parameters.values()
        if (rule := _RULES.get(str(parameter.annotation).removesuffix(" | None")))
    }

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> T:
        given = own.bind(*arguments, **keywords)
        try:
            for name, ((rule, each), annotation) in rules.items():
                value: Any = given.arguments.get(name)
                kinds = {word.replace("None", "NoneType") for word in annotation.split(" | ")}
                own_kinds = {kind.__name__ for kind in type(value).mro()} - _RULES.keys()
                if name not in given.arguments or kinds & own_kinds:
                    continue
                require(rule, **{name: value})
                if each is not None:
                    given.arguments[name] = value = [*value]
                    require_each(each, name, value)
            with naming_extras():
                return function(*given.args, **given.kwargs)
        except CmflError as error:
            raise error.with_traceback(None) from None

    call.__signature__ = _with_keywords(own, function.__globals__)  # type: ignore[attr-defined]
    return call


def _with_keywords(own: Signature, known: Mapping[str, Any]) -> Signature:
    *others, last = own.parameters.values()
    table = known.get(str(last.annotation).removeprefix("Unpack[").removesuffix("]"))
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in getattr(table, "__annotations__", {}).items()
    ]
    return own.replace(parameters=[*others, *keywords, last])


def first_and_last(rounds: Sequence[int]) -> tuple[int, int]:
    """Return the two whole numbers that name a range of rounds."""
    rule = f"rounds = {rounds!r:.80}: must be the first and the last"
    with naming(rule, (TypeError, ValueError)):
        first, last = rounds
        return int(first), int(last)


def digest_of_head(head: str, argument: str = "head") -> Digest:
    """Return a head that was kept, or another digest that an argument gives as 0x-hex."""
    from ledger.protocol.types import Digest

    try:
        value = bytes.fromhex(head.removeprefix("0x"))
    except ValueError:
        value = b""
    if len(value) != 32:
        raise ConfigurationError(f"{argument} = {head[:80]!r}: must be 0x and 64 hex digits")
    return Digest(value)


CODE = "code"  # folder of a home for code that Python arguments name


def reference(name: str, part: object, folder: Path) -> str:
    """Return the text that a setting has for a part: a name, or where a class or function is."""
    if isinstance(part, str):
        return part
    if not callable(part):
        raise ConfigurationError(
            f"{name}: must be a name, a class or a function (given: {part!r:.80})"
        )
    from ledger.io.home import naming
    from ledger.io.user_code import code_reference

    with naming(name, ConfigurationError):
        return code_reference(part, folder.absolute() / CODE)
