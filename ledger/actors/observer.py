"""Gathers what actors can see: the open round on the chain, envelopes, and payloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ledger.actors.actions import ActorContext
from ledger.actors.contract_follower import ContractFollower
from ledger.actors.published_blobs import PublishedBlobs
from ledger.actors.run_models import RunModels
from ledger.actors.view import ChainView, RoundView, empty_round_view
from ledger.chain.contract.ledger import LedgerSnapshot
from ledger.chain.finality import AncestryCheck
from ledger.chain.ports import Block
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
from ledger.protocol.errors import BlobError, BlobUnreachableError
from ledger.protocol.inputs import Inputs
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.payload import Payload
from ledger.protocol.types import ClientId, Digest

OVERSIZED_BYTES = 1 << 20
"""How large a payload may be if an update is smaller; one that is larger is as good as missing."""

_KINDS = (
    EnvelopeKind.PAYLOAD,
    EnvelopeKind.SCORES,
    EnvelopeKind.REQUEST,
    EnvelopeKind.REPLY,
)


class Observer:
    """The view of the run for any number of actors in one process.

    Attributes:
        newest: the chain's newest block when `chain` was last asked for; None before.
        final: the contract's storage after the newest final block then; None before, and where
            it was not asked.
    """

    def __init__(
        self,
        context: ActorContext,
        published: PublishedBlobs | None = None,
        *,
        lineage: AncestryCheck | None = None,
        remembers: bool = False,
    ) -> None:
        """Observe a run.

        Args:
            published: what a driver of the same process has stored, which is not read again.
        """
        self._context = context
        self._published = PublishedBlobs() if published is None else published
        self._models = RunModels(context, self._published, self._state, remembers=remembers)
        self._follower = ContractFollower(
            context.ledger, lineage or AncestryCheck(context.ledger.block)
        )
        self._listed: dict[tuple[int, EnvelopeKind], int] = {}
        self._unreachable: Counter[Digest] = Counter()
        self._seen: ChainView | None = None
        self.newest: Block | None = None
        self.final: LedgerSnapshot | None = None

    def chain(self, newest: Block | None = None, *, verifies: bool = True) -> ChainView | None:
        """Return the open round as the chain has it, None after the last.

        What was read up to a final block is not read again while the chain contains it.

        Args:
            verifies: whether to compare the events with the contract's storage; if not, the next
                time compares them.
        """
        newest = self._context.ledger.newest_block() if newest is None else newest
        is_read = self.newest is not None and newest.hash == self.newest.hash
        if not is_read or (verifies and self.final is None):
            self._seen = self._read(newest, verifies=verifies)
            self.newest = newest
        return self._seen

    def _read(self, newest: Block, *, verifies: bool) -> ChainView | None:
        ledger = self._context.ledger
        # One block for all that is read: final, and not before the contract is there.
        final_block = ledger.final_number(newest, self._context.finality_blocks)
        final_block = max(ledger.from_block, final_block)
        followed = self._follower.read(newest, final_block, verifies=verifies)
        self.final, view = followed.storage, followed.open_round
        if view is None:
            return None
        return ChainView(
            parameters=self._context.parameters,
            layout=self._context.layout,
            domain=self._context.domain,
            registry=view.registry,
            round=view.round,
            seed=view.seed,
            committee=view.committee,
            opened_block=view.opened_block,
            final_block=final_block,
            commitments=view.mined,
        )

    def _state(self, block: int | None) -> LedgerSnapshot:
        """Return what the contract kept after a block, None for the newest."""
        followed = self._follower.newest
        if followed is not None and followed.final_block == block and followed.storage is not None:
            return followed.storage
        return self._context.ledger.state(block)

    def opened(
        self, inputs: Inputs, model: NDArray[np.float32], block: int | None = None
    ) -> RoundView:
        """Return the view of a round whose closing block is final.

        Args:
            inputs: what the chain has closed.
            model: w_t, shape (d,).
            block: the one after which the chain is looked at, None for the newest.
        """
        closing = self._context.ledger.block(inputs.closing.block)
        self._listed.clear()
        self._unreachable.clear()
        travel = self.travel(inputs.round, block)
        return self._now(empty_round_view(inputs, float(closing.timestamp), model, travel))

    def look(self, view: RoundView, *, fetches: bool = True) -> RoundView:
        """Return the view with new envelopes, and the payloads that they announce.

        Args:
            fetches: whether payloads are fetched; a client that only trains needs none.
        """
        view = self._now(view)
        listed = dict(self._listed)
        for kind in _KINDS:
            key = (view.inputs.round, kind)
            start = listed.get(key, 0)
            came = self._context.mailbox.listed(view.inputs.domain, view.inputs.round, kind, start)
            if came:
                listed[key] = start + len(came)
                view = view.with_envelopes(came)
        missing = {c: d for c, d in view.announced.items() if c not in view.evidence.payloads}
        if fetches and missing:
            view = view.with_payloads(self._fetched(missing))
        # Not sooner: if one listing fails, the others' envelopes are in no view.
        self._listed = listed
        return view

    def _now(self, view: RoundView) -> RoundView:
        if self.newest is None or self.newest.number == view.newest_block:
            return view
        return replace(view, newest_block=self.newest.number)

    def envelopes_of(self, view: RoundView, client: ClientId) -> list[Envelope]:
        """Return a client's envelopes of a round in the mailbox."""
        return [envelope for envelope in self.envelopes(view) if envelope.client == client]

    def envelopes(self, view: RoundView) -> list[Envelope]:
        """Return all envelopes of a round in the mailbox, read from its beginning."""
        return [envelope for kind in _KINDS for envelope in self._whole(view, kind)]

    def is_open(self, round_number: int) -> bool:
        """Say whether this round is still open."""
        state = self._context.ledger.state()
        return state.stage is LedgerStage.OPEN and state.round == round_number

    def model(self, block: int | None = None) -> NDArray[np.float32]:
        """Return w_t, shape (d,), as the contract names it."""
        return self._models.newest(block)

    def travel(self, round_number: int, block: int | None = None) -> NDArray[np.float32] | None:
        """Return w_s − w_t, shape (d,), of the open round; None where its distances need none.

        Args:
            block: the one after which it is open, None for the newest.
        """
        return self._models.travel(round_number, block)

    def _whole(self, view: RoundView, kind: EnvelopeKind) -> list[Envelope]:
        """Return all mail of a kind, in as many listings as it takes: one reads only so much."""
        envelopes: list[Envelope] = []
        board = (view.inputs.domain, view.inputs.round, kind)
        while came := self._context.mailbox.listed(*board, len(envelopes)):
            envelopes += came
        return envelopes

    def _fetched(self, announced: Mapping[ClientId, Digest]) -> dict[ClientId, Payload]:
        parameters = self._context.parameters
        limit = max(parameters.payload_form.size(parameters.dimension), OVERSIZED_BYTES)
        payloads = {}
        # Blobs with the fewest failures come first, so that none delays the others.
        for client in sorted(announced, key=lambda one: self._unreachable[announced[one]]):
            digest = announced[client]
            payload = self._published.find(digest)
            if payload is None:
                try:
                    payload = Payload.of(self._context.blobs.get(digest, limit))
                except BlobUnreachableError:
                    # A store that is silent for one may be for all: votes do not wait for each.
                    self._unreachable[digest] += 1
                    break
                except BlobError:
                    continue  # announced and not there: it may still come
            if payload.size <= limit:
                payloads[client] = payload
        return payloads
