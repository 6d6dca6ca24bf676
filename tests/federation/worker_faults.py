"""Faults of a federation's worker, read by `faulty_process` from its variable.

Nothing that an owner runs reads the variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clients.adversaries.faults import (
    UNINVITED,
    MemberFault,
    TrainerFault,
    member_with,
    trainer_with,
    wild_reference,
)
from clients.worker.worker import WorkerBehaviour
from ledger.actors.participants import Member, MemberActor, Trainer
from ledger.io.home import read_file
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.signing import Signer
from ledger.protocol.types import ClientId

FAULT_VARIABLE = "CMFL_WORKER_FAULT"
FROM_FILE = "told"  # value that reads the faults of each round from a file
_MOST_BYTES = 1000


@dataclass(frozen=True, slots=True)
class WorkerFaults(WorkerBehaviour):
    of_members: MemberFault | None = None
    of_trainers: TrainerFault | None = None

    def in_round(self, number: int) -> WorkerFaults:  # noqa: ARG002 - the same in each
        return self

    def trainers(
        self, hosted: Sequence[ClientId], active: Sequence[ClientId]
    ) -> Sequence[ClientId]:
        """Return the clients that act as trainers; all of them if the fault is to act uninvited."""
        return hosted if self.of_trainers in UNINVITED else active

    def trainer(self, client: ClientId, signer: Signer) -> Trainer:
        return trainer_with(self.of_trainers, client, signer)

    def member(self, honest: Member, signer: Signer, hosted: frozenset[ClientId]) -> MemberActor:
        """Return the actor of a committee member; a favouring one favours the hosted clients."""
        return member_with(self.of_members, honest, signer, hosted)

    def sent(self, update: Payload, parameters: Parameters, *, is_member: bool) -> Payload:
        """Return the payload that a client commits to, given its update."""
        if not is_member or self.of_members is not MemberFault.FALSE_REFERENCE:
            return update
        form = parameters.payload_form
        vector = form.update_of(update.data, parameters.dimension)
        return update if vector is None else form.payload(wild_reference(vector))


NO_FAULTS = WorkerFaults()


@dataclass(frozen=True, slots=True)
class FileFaults(WorkerBehaviour):
    """Faults of single rounds, read from a file that may change while the worker runs.

    The file holds a round and names of faults, such as `12 copied`; in every other round, and
    without the file, the worker is honest.
    """

    path: Path

    def in_round(self, number: int) -> WorkerFaults:
        try:
            text = read_file(self.path, _MOST_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return NO_FAULTS
        except OSError as error:
            raise ConfigurationError(f"{self.path}: cannot be read: {error.strerror}") from error
        round_number, _, names = text.strip().partition(" ")
        if not (round_number.isascii() and round_number.isdigit()):
            raise ConfigurationError(f"{self.path}: {round_number[:40]!r} is no round's number")
        return faults_named(names) if int(round_number[:20]) == number else NO_FAULTS


def faults_from_file(path: Path) -> str:
    return f"{FROM_FILE}:{path}"


def faults_of(text: str) -> WorkerFaults | FileFaults:
    """Return the faults that the variable's value names (ConfigurationError: it has none)."""
    kind, colon, path = text.partition(":")
    return FileFaults(Path(path)) if colon and kind == FROM_FILE else faults_named(text)


def faults_named(text: str) -> WorkerFaults:
    """Return the faults in a list of names; one of members and trainers applies to both."""
    faults = NO_FAULTS
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in {*MemberFault, *TrainerFault}:
            names = ", ".join(sorted({*MemberFault, *TrainerFault}))
            raise ConfigurationError(f"{FAULT_VARIABLE} = {name[:60]!r}: known are {names}")
        faults = WorkerFaults(
            MemberFault(name) if name in set(MemberFault) else faults.of_members,
            TrainerFault(name) if name in set(TrainerFault) else faults.of_trainers,
        )
    return faults
