"""Values as text for sentences; text that others wrote stays bounded, plain text."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.protocol.encoding import to_hex
from ledger.protocol.ledger_state import StatementKind
from ledger.protocol.types import DROPOUTS, PHASES, REFUSALS, ClientId, DropoutReason, RefusalReason

MAX_CHARACTERS = 300
"""The longest text of others that a sentence or a report holds."""

_STATEMENTS: dict[StatementKind, str] = {
    StatementKind.REQUEST: "requests",
    StatementKind.REPLY: "replies",
    StatementKind.SCORES: "score vectors",
}


def reason_text(
    code: DropoutReason | RefusalReason | StatementKind | None, victims: Sequence[ClientId] = ()
) -> str:
    """Return a reason, or the kind of statement that was signed twice, in words.

    Args:
        code: the reason or kind; None gives no text.
    """
    if isinstance(code, DropoutReason):
        return DROPOUTS[code]
    if isinstance(code, RefusalReason):
        return REFUSALS[code] + (f": that to client {listed(victims)}" if victims else "")
    return "" if code is None else _STATEMENTS[code]


def vote_slot_text(round_number: int, phase: int, view: int) -> str:
    """Return the slot of a vote, to follow a sentence; a score vector has phase 0."""
    if phase == 0:
        return f" in round {round_number}"
    # Two votes for a phase that does not exist are two votes as well.
    phases = {int(phase): name for phase, name in PHASES.items()}
    return f" in view {view + 1} of {phases.get(phase, f'phase {phase}')} of round {round_number}"


def subject_prefix(round_number: int | None, clients: tuple[ClientId, ...]) -> str:
    """Return the round and clients that a sentence begins with; empty without any."""
    subjects = [f"round {round_number}"] if round_number is not None else []
    if clients:
        subjects.append(f"client{'s' * (len(clients) > 1)} {listed(clients)}")
    return f"{', '.join(subjects)}: " if subjects else ""


def listed(values: Sequence[int], limit: int = 20) -> str:
    """Return numbers as text, the first of them if there are many."""
    text = ", ".join(str(value) for value in values[:limit])
    return text if len(values) <= limit else f"{text} and {len(values) - limit} more"


def text_of(value: object, limit: int = 16) -> str:
    """Return a recorded value as text: bytes as 0x-hex, tuples up to `limit` entries."""
    if isinstance(value, bytes):
        return to_hex(value)
    if isinstance(value, tuple):
        rest = f", ... {len(value)} in all" if len(value) > limit else ""
        return f"({', '.join(text_of(entry) for entry in value[:limit])}{rest})"
    return str(value)


def bounded(text: str) -> str:
    """Return the first characters of a text that others wrote."""
    return text[:MAX_CHARACTERS]


def plain(text: str) -> str:
    """Return bounded text without line ends, control characters and the brackets of markup."""
    printable = "".join(c if c.isascii() and c.isprintable() else "?" for c in bounded(text))
    return printable.replace("[", "(").replace("]", ")")
