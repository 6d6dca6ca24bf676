"""How a worker is made to misbehave, for tests of what the others make of it.

It stands in the environment and not among the options: nobody's worker is faulty by a slip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clients.adversaries.faults import MemberFault, TrainerFault, wild_reference
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload

if TYPE_CHECKING:
    from ledger.protocol.types import ClientId

FAULT_VARIABLE = "CMFL_WORKER_FAULT"


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
