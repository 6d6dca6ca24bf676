"""Actors on a real contract: an embedded chain, with the driver and the observer of the product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from clients.adversaries.faults import MemberFault, member_with
from ledger.actors.driver import Driver
from ledger.actors.journal import FileJournal, MemoryJournal
from ledger.actors.observer import Observer
from ledger.actors.participants import Member, MemberActor, Trainer
from ledger.actors.steps import Action, ActorContext, JudgementCache, SendReport
from ledger.actors.view import ChainView, RoundView
from ledger.chain.contract.deploy import deploy
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.memory import memory_ledger
from ledger.io.home import RunPaths
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import vector_bytes
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId
from ledger.storage.blobs import MemoryBlobs
from ledger.storage.mailbox import MemoryMailbox
from tests.actors.support import LAYOUT, PARAMETERS, initial_model, payload_of, registry_of, signers
from tests.support.rounds import OpenRound

if TYPE_CHECKING:
    from ledger.chain.embedded.embedded_chain import EmbeddedChain


@dataclass
class Deployed:
    """A deployed run, and everything that its actors act on.

    Attributes:
        payloads: what clients send instead of their update.
    """

    context: ActorContext
    blobs: MemoryBlobs
    payloads: dict[ClientId, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.driver = Driver(self.context)
        self.observer = Observer(self.context)

    def chain_view(self) -> ChainView:
        chain = self.observer.chain()
        assert chain is not None
        return chain

    def payload(self, client: ClientId) -> bytes:
        round_number = self.context.ledger.state().round
        return self.payloads.get(client, payload_of(round_number, client))

    def commitments(self, *clients: ClientId) -> list[Action]:
        chain = self.chain_view()
        return [
            action
            for client in clients
            for action in Trainer(client, signers()[client]).commit(
                chain, Payload.of(self.payload(client))
            )
        ]

    def commit(self, *clients: ClientId) -> bool:
        return self.driver.apply(self.commitments(*clients))

    def closed(self, *absent: ClientId) -> RoundView:
        """Let all active clients but these commit, and return the closed round."""
        chain = self.chain_view()
        self.commit(*sorted(chain.participants().expected - set(absent)))
        if absent:
            self.driver.mine_to(chain.opened_block + chain.parameters.commit_blocks)
        inputs = self.chain_view().inputs()
        assert inputs is not None
        return self.observer.opened(inputs, self.observer.model())

    def publish(self, *clients: ClientId) -> None:
        inputs = self.chain_view().inputs()
        assert inputs is not None
        view = Observer(self.context).opened(inputs, self.observer.model())
        for client in clients:
            trainer = Trainer(client, signers()[client], Payload.of(self.payload(client)))
            self.driver.apply(trainer.publish(view))

    def ban(self, client: ClientId) -> bool:
        """Bring two votes of a client's own to the contract."""
        number = self.context.ledger.state().round
        open_round = OpenRound(self.context.domain, signers(), number)
        return self.driver.apply([SendReport(open_round.equivocation(client))])

    def members(
        self, view: RoundView, faults: Mapping[int, MemberFault] | None = None
    ) -> list[MemberActor]:
        judge = JudgementCache()
        return [
            member_with(
                (faults or {}).get(place),
                Member(client, signers()[client], self.context.journal, judge),
                signers()[client],
            )
            for place, client in enumerate(view.inputs.participants.members)
        ]

    def play(
        self, faults: Mapping[int, MemberFault] | None = None, absent: tuple[ClientId, ...] = ()
    ) -> RoundDecided | None:
        """Play the open round, and return its decision if there is one."""
        view = self.closed(*absent)
        self.publish(*sorted(view.inputs.participants.expected - set(absent)))
        members, now = self.members(view, faults), view.closed_at
        while self.context.is_open(view.inputs.round):
            view = self.observer.look(view)
            steps = [action for member in members for action in member.step(view, now)]
            if self.driver.apply(steps):
                continue
            times = [t for one in members if (t := one.next_time(view, now)) is not None]
            if not times:
                break
            now = min(times)
        return self.decided(view.inputs.round)

    def decided(self, round_number: int) -> RoundDecided | None:
        events = [found.event for found in self.context.ledger.round_events(round_number)]
        return next((event for event in events if isinstance(event, RoundDecided)), None)


def deployed_on(
    chain: EmbeddedChain, folder: Path, parameters: Parameters = PARAMETERS
) -> Deployed:
    """Deploy a run of the tests' clients."""
    blobs = MemoryBlobs()
    model = blobs.put(vector_bytes(initial_model()))
    document = RunDocument(parameters, registry_of(parameters), model, LAYOUT, {})
    blobs.put(encode_run(document))
    manifest = deploy(chain, document, RunPaths(folder))
    ledger = LedgerWriter(chain, manifest.address, manifest.block)
    context = ActorContext(
        parameters=parameters,
        domain=manifest.domain(),
        ledger=ledger,
        blobs=blobs,
        mailbox=MemoryMailbox(),
        journal=FileJournal(folder / "journal.sqlite"),
    )
    return Deployed(context, blobs)


def in_memory(parameters: Parameters) -> Deployed:
    """Deploy a run of the tests' clients on a memory ledger."""
    blobs = MemoryBlobs()
    model = blobs.put(vector_bytes(initial_model()))
    ledger = memory_ledger(RunDocument(parameters, registry_of(parameters), model, LAYOUT, {}))
    context = ActorContext(
        parameters=parameters,
        domain=ledger.domain,
        ledger=ledger,
        blobs=blobs,
        mailbox=MemoryMailbox(),
        journal=MemoryJournal(),
    )
    return Deployed(context, blobs)
