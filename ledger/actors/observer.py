"""The view of actors: the followed contract, the run's models, envelopes and payloads.

Final blocks do not change, so only later events are read, and only if the contract's storage has
moved. Every event moves it (`contract/event_log.py`): heads and digests are chains of hashes, which
never return to an earlier value. The later events must lead to the storage. A node that lags behind
or omits an event contradicts the contract's own answer. The reader of its own transactions may
postpone this comparison to a later reading.

Reading continues only from a block that the chain certainly still contains. Otherwise (after a
restart or a reorganisation, or if a node ends before or contradicts what was read) everything is
read again, from the block that created the contract.

Bytes that this process hashed need no second look, so its own actors find them here and not in the
store. Bytes of others are read from the store, and verified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ledger.actors.steps import ActorContext
from ledger.actors.view import ChainView, RoundView
from ledger.chain.contract.event_log import require_complete, view_after
from ledger.chain.finality import AncestryCheck
from ledger.chain.ports import Block, NotServedError
from ledger.chain.round_ledger import LedgerSnapshot, RoundHistory, ends_after
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
from ledger.protocol.encoding import vector_from_bytes
from ledger.protocol.errors import BlobError, BlobUnreachableError
from ledger.protocol.inputs import Evidence, Inputs, needs_displacement
from ledger.protocol.ledger_state import LedgerStage, LedgerView, RoundDecided
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.direction import WINDOW, displacement, window_start
from ledger.protocol.types import ClientId, Digest


@dataclass(frozen=True, slots=True)
class FollowedContract:
    """The contract after a final block; `storage` is None where the contract was not asked."""

    head: Block
    final_block: int
    storage: LedgerSnapshot | None
    view: LedgerView

    @property
    def open_round(self) -> LedgerView | None:
        return self.view if self.view.stage is LedgerStage.OPEN else None


class ContractFollower:
    """Reads a contract from one final block to the next."""

    def __init__(self, ledger: RoundHistory, ancestry: AncestryCheck) -> None:
        self._ledger = ledger
        self._ancestry = ancestry
        self.newest: FollowedContract | None = None

    def read(self, head: Block, final_block: int, *, verifies: bool = True) -> FollowedContract:
        """Return the contract after a final block; verify the events by its storage, or later."""
        before = self.newest
        if before is not None and (
            before.final_block > final_block or not self._ancestry.connects(before.head, head)
        ):
            before = None
        is_read = before is not None and before.final_block == final_block
        if before is not None and is_read and (before.storage is not None or not verifies):
            self.newest = replace(before, head=head)
            return self.newest
        storage = self._ledger.state(final_block) if verifies else None
        if before is not None and storage is not None and before.storage == storage:
            self.newest = replace(before, head=head, final_block=final_block)
            return self.newest
        if before is None:
            first = self._ledger.from_block
            view = LedgerView.at_deployment(self._ledger.deployment())
        else:
            first, view = before.final_block + 1, before.view
        try:
            view = view_after(view, self._ledger.recorded_in(first, final_block))
            if storage is not None:
                require_complete(view, storage, final_block, self._ledger.node)
        except NotServedError:
            # The earlier reading may be wrong, if one address hides several nodes.
            self.newest = None
            raise
        self.newest = FollowedContract(head, final_block, storage, view)
        return self.newest


class PublishedBlobs:
    """The blobs of one round, not copied: forget them before its clients train again."""

    def __init__(self) -> None:
        self.payloads: dict[ClientId, Payload] = {}
        self._known: dict[Digest, Payload] = {}

    def take(self, blobs: Iterable[Payload]) -> None:
        for blob in blobs:
            self._known.setdefault(blob.digest, blob)

    def find(self, digest: Digest) -> Payload | None:
        return self._known.get(digest)

    def forget(self) -> None:
        self.payloads.clear()
        self._known.clear()


def model_of_round(ledger: RoundHistory, round_number: int) -> Digest:
    """Return the digest of w_s, the model that a round began with."""
    first = round_number - 2
    while round_number > 1:
        for event in reversed(ends_after(ledger, max(0, first))):
            if isinstance(event, RoundDecided) and event.round < round_number:
                return event.model
        if first <= 0:
            break
        first -= round_number - first  # the rounds just before it were abandoned
    return ledger.deployment().model


# Largest payload where an update is smaller; one that is larger is as good as missing.
OVERSIZED_BYTES = 1 << 20
_KINDS = (EnvelopeKind.PAYLOAD, EnvelopeKind.SCORES, EnvelopeKind.REQUEST, EnvelopeKind.REPLY)


class Observer:
    """The view of the run for any number of actors in one process: chain, models and mail.

    The `published` blobs of a driver of this process are not read again. With `remembers` it holds
    a window's models, where nothing is stored that could be read again. `newest` is the chain's
    newest block when `chain` was last called. `final` is the contract's storage after the newest
    final block then; None where the contract was not asked.
    """

    def __init__(
        self,
        context: ActorContext,
        published: PublishedBlobs | None = None,
        *,
        lineage: AncestryCheck | None = None,
        remembers: bool = False,
    ) -> None:
        self._context = context
        self._published = PublishedBlobs() if published is None else published
        has_travel = context.parameters.compares_directions
        self._most_models = WINDOW + 1 if has_travel and remembers else 1
        self._models: dict[Digest, NDArray[np.float32]] = {}
        self._travel: tuple[int, Digest, NDArray[np.float32]] | None = None
        self._follower = ContractFollower(
            context.ledger, lineage or AncestryCheck(context.ledger.block)
        )
        self._listed: dict[tuple[int, EnvelopeKind], int] = {}
        self._unreachable: Counter[Digest] = Counter()
        self._seen: ChainView | None = None
        self.newest: Block | None = None
        self.final: LedgerSnapshot | None = None

    def chain(self, newest: Block | None = None, *, verifies: bool = True) -> ChainView | None:
        """Return the open round as the chain has it, None after the last; verify it, or later."""
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
        followed = self._follower.newest
        if followed is not None and followed.final_block == block and followed.storage is not None:
            return followed.storage
        return self._context.ledger.state(block)

    def model(self, block: int | None = None) -> NDArray[np.float32]:
        """Return w_t, shape (d,), as the contract names it after a block, None for the newest."""
        digest, held = self._state(block).model, self._models
        # Last in order, also where an undecided round left the model as it was.
        held[digest] = held.pop(digest) if digest in held else self._read_model(digest)
        while len(held) > self._most_models:
            del held[next(iter(held))]
        return held[digest]

    def travel(self, round_number: int, block: int | None = None) -> NDArray[np.float32] | None:
        """Return w_s − w_t, shape (d,), of the open round; None where its distances need none."""
        if not needs_displacement(self._context.parameters, round_number):
            return None
        now = self._state(block).model
        if self._travel is None or self._travel[:2] != (round_number, now):
            before = model_of_round(self._context.ledger, window_start(round_number))
            older = self._models[before] if before in self._models else self._read_model(before)
            self._travel = round_number, now, displacement(older, self.model(block))
        return self._travel[2]

    def _read_model(self, digest: Digest) -> NDArray[np.float32]:
        dimension = self._context.parameters.dimension
        blob = self._published.find(digest)
        data = self._context.blobs.get(digest, 4 * dimension) if blob is None else blob.data
        return vector_from_bytes(data, dimension)

    def opened(
        self, inputs: Inputs, model: NDArray[np.float32], block: int | None = None
    ) -> RoundView:
        """Return the view of a round whose closing block is final; `model` is w_t, shape (d,)."""
        closing = self._context.ledger.block(inputs.closing.block)
        self._listed.clear()
        self._unreachable.clear()
        travel, form = self.travel(inputs.round, block), inputs.parameters.payload_form
        evidence = Evidence(model, {}, {}, displacement=travel, form=form)
        return self._now(RoundView(inputs, float(closing.timestamp), evidence))

    def look(self, view: RoundView, *, fetches: bool = True) -> RoundView:
        """Return the view with new envelopes, and the payloads that they announce, if wanted."""
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

    def envelopes(self, view: RoundView) -> list[Envelope]:
        envelopes: list[Envelope] = []
        for kind in _KINDS:
            board, start = (view.inputs.domain, view.inputs.round, kind), len(envelopes)
            while came := self._context.mailbox.listed(*board, len(envelopes) - start):
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
