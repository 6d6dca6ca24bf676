"""How a worker is made to misbehave, for tests of what the others make of it.

It stands in the environment and not among the options: nobody's worker is faulty by a slip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clients.adversaries.faults import MemberFault, TrainerFault, wild_reference
from ledger.home import read_file
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.protocol.types import ClientId

FAULT_VARIABLE = "CMFL_WORKER_FAULT"
TOLD = "told"
"""Asks for what a file in the worker's folder says of each round, when the round begins."""

_MOST_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Faults:
    """How all clients of a worker depart from honest ones.

    Attributes:
        member: on the committee; None for honestly.
        trainer: as clients that train; None for honestly.
    """

    member: MemberFault | None = None
    trainer: TrainerFault | None = None

    @property
    def are_any(self) -> bool:
        """Whether it departs at all."""
        return self.member is not None or self.trainer is not None

    def in_round(self, number: int) -> Faults:  # noqa: ARG002 - the same in each
        """Return the faults of one round.

        Args:
            number: t.
        """
        return self

    def sent(self, update: Payload, *, is_member: bool) -> Payload:
        """Return what a client commits to in the place of its update.

        Args:
            update: what it has trained.
            is_member: whether it sits on the committee.
        """
        if not is_member or self.member is not MemberFault.FALSE_REFERENCE:
            return update
        vector = np.frombuffer(update.data, dtype="<f4")
        return Payload.of(wild_reference(vector).tobytes())


HONEST = Faults()


@dataclass(frozen=True, slots=True)
class ToldFaults:
    """Faults of single rounds, as a file tells them that may come while the worker runs.

    It holds the round and the names of its faults, such as `12 copied`; in every other round, and
    where it is not there, the worker is honest.

    Attributes:
        path: of the file.
    """

    path: Path

    @property
    def are_any(self) -> bool:
        """Whether the worker may depart from an honest one."""
        return True

    def in_round(self, number: int) -> Faults:
        """Return the faults of one round.

        Args:
            number: t.

        Raises:
            ConfigurationError: the file says something else.
        """
        try:
            told = read_file(self.path, _MOST_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return HONEST
        except OSError as error:
            raise ConfigurationError(f"{self.path}: cannot be read: {error.strerror}") from error
        round_number, _, names = told.strip().partition(" ")
        if not (round_number.isascii() and round_number.isdigit()):
            raise ConfigurationError(f"{self.path}: {round_number[:40]!r} is no round's number")
        return faults_named(names) if int(round_number[:20]) == number else HONEST


def faults_of(text: str, path: Path) -> Faults | ToldFaults:
    """Return the faults that the environment asks for.

    Args:
        text: names of faults, or `told`.
        path: of the file that tells them in that case.

    Raises:
        ConfigurationError: there is no such fault.
    """
    return ToldFaults(path) if text == TOLD else faults_named(text)


def faults_named(text: str) -> Faults:
    """Return the faults that a text asks for.

    Args:
        text: names of faults, between commas; one that members and trainers both have is meant for
            both. Empty for none.

    Raises:
        ConfigurationError: there is no such fault.
    """
    faults = HONEST
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in {*MemberFault, *TrainerFault}:
            known = ", ".join(sorted({*MemberFault, *TrainerFault}))
            raise ConfigurationError(f"{FAULT_VARIABLE} = {name[:60]!r}: known are {known}")
        faults = Faults(
            MemberFault(name) if name in set(MemberFault) else faults.member,
            TrainerFault(name) if name in set(TrainerFault) else faults.trainer,
        )
    return faults


def favoured_by(faults: Faults, hosted: frozenset[ClientId]) -> frozenset[ClientId]:
    """Return whom a member that favours somebody favours: the clients beside it.

    Args:
        faults: of the worker.
        hosted: its clients.
    """
    return hosted if faults.are_any else frozenset()
