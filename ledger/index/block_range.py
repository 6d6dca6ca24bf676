"""The events of a range of blocks, taken one after the other: what they add to a deployment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledger.protocol.ledger_state import ClientBanned, ClientsRegistered, LedgerOpened

if TYPE_CHECKING:
    from ledger.chain.contract.event_logs import RecordedEvent
    from ledger.index.standing import Events, Standing


@dataclass(slots=True)
class BlockRange:
    """What a range of blocks adds.

    Attributes:
        standing: where the deployment stands, from before the range to after it.
        rounds: all that the chain holds of the rounds that the range tells of, by number.
        registrations: events of the registration, and the ledger's opening.
        bans: round and block of each, by client.
    """

    standing: Standing
    rounds: dict[int, Events] = field(default_factory=dict)
    registrations: list[RecordedEvent] = field(default_factory=list)
    bans: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, recorded: RecordedEvent) -> None:
        """Go on by one event.

        Args:
            recorded: the next one, and where the chain holds it.

        Raises:
            NotServedError: it does not follow from those before it.
        """
        self._touch()
        self.standing.take(recorded)
        self._touch(opened=True)
        match recorded.event:
            case ClientsRegistered() | LedgerOpened():
                self.registrations.append(recorded)
            case ClientBanned(number, client, _):
                self.bans[client] = number, recorded.block_number
            case _:
                pass

    def _touch(self, *, opened: bool = False) -> None:
        current = self.standing.current
        if current is not None and (opened or current.opening.round == self.standing.number):
            self.rounds[current.opening.round] = current
