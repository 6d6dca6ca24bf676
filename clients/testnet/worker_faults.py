"""How a worker of a test network is made to misbehave, for tests of what the others do then.

The variable is read by the test network's own entry point, `cli.network_process`, and by nothing
that an owner runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clients.adversaries.faults import UNINVITED, MemberFault, TrainerFault, wild_reference
from clients.adversaries.faulty_members import member_with
from clients.adversaries.faulty_trainers import trainer_with
from ledger.io.home import read_file
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.actors.member import Member, MemberActor
    from ledger.actors.trainer import Trainer
    from ledger.protocol.signing import Signer
    from ledger.protocol.types import ClientId

FAULT_VARIABLE = "CMFL_WORKER_FAULT"
FROM_FILE = "told"
"""Asks for what a file says of each round, when the round begins."""

_MOST_BYTES = 1000


@dataclass(frozen=True, slots=True)
class WorkerFaults:
    """How all clients of a worker depart from honest ones.

    Attributes:
        of_members: on the committee; None for honestly.
        of_trainers: as clients that train; None for honestly.
    """

    of_members: MemberFault | None = None
    of_trainers: TrainerFault | None = None

    def in_round(self, number: int) -> WorkerFaults:  # noqa: ARG002 - the same in each
        """Return the faults of one round.

        Args:
            number: t.
        """
        return self

    def trainers(
        self, hosted: Sequence[ClientId], active: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Return who acts as a trainer: all clients, where the fault is to act uninvited.

        Args:
            hosted: all clients of the worker, ascending.
            active: those that train or serve, ascending.
        """
        return hosted if self.of_trainers in UNINVITED else active

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        """Return the actor of a client that trains.

        Args:
            client: who it is.
            signer: its key.
        """
        return trainer_with(self.of_trainers, client, signer)

    def member(self, honest: Member, signer: Signer, hosted: frozenset[ClientId]) -> MemberActor:
        """Return the actor of a client that serves; one that favours somebody favours the hosted.

        Args:
            honest: the honest member.
            signer: its key.
            hosted: all clients of the worker.
        """
        return member_with(self.of_members, honest, signer, hosted)

    def sent(self, update: Payload, *, is_member: bool) -> Payload:
        """Return what a client commits to in the place of its update.

        Args:
            update: what it has trained.
            is_member: whether it sits on the committee.
        """
        if not is_member or self.of_members is not MemberFault.FALSE_REFERENCE:
            return update
        vector = np.frombuffer(update.data, dtype="<f4")
        return Payload.of(wild_reference(vector).tobytes())


NO_FAULTS = WorkerFaults()


@dataclass(frozen=True, slots=True)
class FileFaults:
    """Faults of single rounds, as a file tells them that may come while the worker runs.

    It holds the round and the names of its faults, such as `12 copied`; in every other round, and
    where it is not there, the worker is honest.

    Attributes:
        path: of the file.
    """

    path: Path

    def in_round(self, number: int) -> WorkerFaults:
        """Return the faults of one round.

        Args:
            number: t.

        Raises:
            ConfigurationError: the file says something else.
        """
        try:
            told = read_file(self.path, _MOST_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return NO_FAULTS
        except OSError as error:
            raise ConfigurationError(f"{self.path}: cannot be read: {error.strerror}") from error
        round_number, _, names = told.strip().partition(" ")
        if not (round_number.isascii() and round_number.isdigit()):
            raise ConfigurationError(f"{self.path}: {round_number[:40]!r} is no round's number")
        return faults_named(names) if int(round_number[:20]) == number else NO_FAULTS


def faults_from_file(path: Path) -> str:
    """Return the value of the variable for a worker whose faults a file tells.

    Args:
        path: of the file.
    """
    return f"{FROM_FILE}:{path}"


def faults_of(text: str) -> WorkerFaults | FileFaults:
    """Return the faults that the variable asks for.

    Args:
        text: its value: names of faults, or what `told_by` returns.

    Raises:
        ConfigurationError: there is no such fault.
    """
    kind, colon, path = text.partition(":")
    return FileFaults(Path(path)) if colon and kind == FROM_FILE else faults_named(text)


def faults_named(text: str) -> WorkerFaults:
    """Return the faults that a text asks for.

    Args:
        text: names of faults, between commas; one that members and trainers both have is meant for
            both. Empty for none.

    Raises:
        ConfigurationError: there is no such fault.
    """
    faults = NO_FAULTS
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in {*MemberFault, *TrainerFault}:
            known = ", ".join(sorted({*MemberFault, *TrainerFault}))
            raise ConfigurationError(f"{FAULT_VARIABLE} = {name[:60]!r}: known are {known}")
        faults = WorkerFaults(
            MemberFault(name) if name in set(MemberFault) else faults.of_members,
            TrainerFault(name) if name in set(TrainerFault) else faults.of_trainers,
        )
    return faults
