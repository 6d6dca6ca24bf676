"""What is asked of the fork server and what it answers: one JSON object a line.

Each has a number, by which an answer belongs to what was asked.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ledger.io.json import parse_json
from ledger.protocol.errors import CmflError

if TYPE_CHECKING:
    from io import BufferedReader

MOST_LINE_BYTES = 1 << 20


class MessageError(CmflError):
    """What came is no message of this protocol."""


class Wish(StrEnum):
    """What the server is asked for."""

    START = "start"
    SIGNAL = "signal"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Command:
    """One process that is to be.

    Attributes:
        arguments: of the entry point; of a program, its path first.
        log: file that its standard error is appended to.
        output: file that its standard output is appended to.
        folder: that it works in.
        environment: variables on top of the server's.
        is_program: a program of its own rather than the server's entry point.
        memory_bytes: how much private memory it may have; None for no limit.
        is_early: whether it is forked though the server has not imported everything yet.
    """

    arguments: tuple[str, ...]
    log: str
    output: str
    folder: str
    environment: dict[str, str]
    is_program: bool = False
    memory_bytes: int | None = None
    is_early: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Command:
        """Return the command in a message.

        Args:
            value: what `as_dict` made.

        Raises:
            MessageError: it is none.
        """
        try:
            return cls(**(value | {"arguments": tuple(value["arguments"])}))
        except (TypeError, KeyError) as error:
            raise MessageError(f"no command: {error}") from error


def read_message(stream: BufferedReader) -> dict[str, Any] | None:
    """Return the next message of a stream, None at its end.

    Args:
        stream: of lines.

    Raises:
        MessageError: what came is no JSON object, or too long.
    """
    line = stream.readline(MOST_LINE_BYTES)
    if not line:
        return None
    try:
        value = parse_json(line, _refused)
    except ValueError as error:
        raise MessageError(f"{line[:80]!r} is no message") from error
    if not isinstance(value, dict) or not line.endswith(b"\n"):
        raise MessageError(f"{line[:80]!r} is no message")
    return value


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
