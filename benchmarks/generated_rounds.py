"""A chain of generated rounds: without contract and signatures, but with consistent events.

The protocol's own functions compute heads, seeds, committees and primaries, so that a reader of
events accepts them. It is faster than real rounds, and can fork. Equal seeds make equal chains.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from eth_abi.abi import encode
from eth_utils.abi import collapse_if_tuple

from benchmarks.ledger import deployment_of
from ledger.audit.replay import adopted, mismatches
from ledger.chain.contract import abi
from ledger.chain.contract.codec import encode_log
from ledger.chain.contract.deploy import constructor_values
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.contract.rehearsal import digest_of
from ledger.chain.ports import Block, ChainBase, Log, LogQuery, NotServedError, Receipt, Transaction
from ledger.protocol import encoding, ledger_state, types
from ledger.protocol.documents.record import RoundRecord, UsableUpdate, encode_record
from ledger.protocol.inputs import sample_trainers
from ledger.protocol.judgement import sets_of
from ledger.protocol.rounds import deployed
from ledger.protocol.rules.selection import rank
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Digest
from ledger.storage.blobs import BlobStore

ADDRESS = "0x00000000000000000000000000000000000000C1"


class MinedBlock(NamedTuple):
    """A block, its logs, and the deployment's state after it."""

    block: Block
    logs: tuple[Log, ...]
    state: ledger_state.LedgerState


class GeneratedChain(ChainBase):
    """A chain with one deployment; `final` is its newest final block, `published` takes records."""

    chain_id = 1_337

    def __init__(
        self,
        clients: int = 12,
        trainers: int = 6,
        members: int = 4,
        rounds: int = 2**31,
        seed: int = 0,
    ) -> None:
        addresses = (Address((place + 1).to_bytes(20)) for place in range(clients))
        registry = (encoding.RegisteredClient(a, 10 + i) for i, a in enumerate(addresses))
        self._words = tuple(map(encoding.registry_word, registry))
        named = {"config": digest_of("configuration", seed), "model": digest_of("model", seed)}
        sizes = {"rounds": rounds, "deadline_blocks": 6}
        fixed = deployment_of(self._words, members, trainers, **named, **sizes)
        contract = Address(encoding.to_canonical(ADDRESS))
        state = deployed(fixed, ledger_state.domain_of(fixed, self.chain_id, contract, NO_DIGEST))
        self.final: int | None = None
        self.published: BlobStore | None = None
        self._rng = np.random.default_rng(seed)
        genesis = Block(0, digest_of("genesis", seed), bytes(32), 1_700_000_000)
        self._blocks = [MinedBlock(genesis, (), state)]
        self.mine(ledger_state.LedgerDeployed(state.domain.salt))

    @property
    def genesis_hash(self) -> bytes:
        return self._blocks[0].block.hash

    @property
    def state(self) -> ledger_state.LedgerState:
        return self._blocks[-1].state

    @property
    def ledger(self) -> CommitteeLedger:
        return CommitteeLedger(self, ADDRESS, 1)

    def fork(self, number: int, seed: int) -> GeneratedChain:
        """Return a chain that has this one's blocks up to a number, and goes its own way."""
        other = copy(self)
        other._rng = np.random.default_rng(seed)
        other._blocks = self._blocks[: number + 1]
        return other

    def register(self) -> None:
        """Register all clients, which opens round 1."""
        registered = ledger_state.ClientsRegistered(ClientId(0), self._words)
        opened = ledger_state.LedgerOpened(NO_DIGEST, NO_DIGEST, (), NO_DIGEST)
        self.mine(registered, opened)

    def commit(self, share: float = 1.0) -> None:
        """Let a share of the active clients commit, in one block."""
        active = [c for c in self._active() if self._rng.random() < share]
        waiting = [client for client in active if client not in self.state.committed]
        if waiting:
            words = tuple(self._new_digest() for _ in waiting)
            self.mine(ledger_state.UpdatesCommitted(self.state.round, tuple(waiting), words))

    def decide(self) -> None:
        self.mine(self._decision())

    def abandon(self) -> None:
        self.mine(ledger_state.RoundAbandoned(self.state.round, (), NO_DIGEST, NO_DIGEST))

    def ban(self) -> None:
        """Ban a client that is not banned yet, as long as enough are left."""
        able = [c for c, entry in enumerate(self.state.registry) if not entry.banned_in]
        fixed = self.state.deployment
        if len(able) > fixed.members + fixed.trainers:
            client = ClientId(able[int(self._rng.integers(len(able)))])
            self.mine(ledger_state.ClientBanned(self.state.round, client, NO_DIGEST))

    def play(self, rounds: int, *, abandoned: float = 0.02) -> None:
        for _ in range(rounds):
            self.commit()
            if self._rng.random() < abandoned:
                self.abandon()
            else:
                self.decide()

    def mine(self, *events: ledger_state.Event) -> None:
        """Make one block with these events, whose fields that follow from others are filled in."""
        parent = self._blocks[-1]
        number, state = parent.block.number + 1, parent.state
        context = ledger_state.BlockContext(number, Digest(parent.block.hash))
        whole: list[ledger_state.Event] = []
        for event in events:
            true: dict[str, Any] = {m[0]: m[2] for m in mismatches(state, event, context)}
            true.pop("registry", None)  # no field of the event: it says that all are registered
            whole.append(replace(event, **true))
            state = adopted(state, whole[-1], number)[0]
        block_hash = encoding.sha256(parent.block.hash + self._rng.bytes(8))
        time = parent.block.timestamp + int(self._rng.integers(1, 20))
        logs = tuple(
            Log(ADDRESS, *encode_log(event), number, block_hash, self._new_digest(), place)
            for place, event in enumerate(whole)
        )
        block = Block(number, block_hash, parent.block.hash, time)
        self._blocks.append(MinedBlock(block, logs, state))

    def _active(self) -> tuple[ClientId, ...]:
        state, fixed = self.state, self.state.deployment
        banned = {ClientId(c) for c, o in enumerate(state.registry) if o.is_banned_in(state.round)}
        excluded = banned.union(state.committee)
        trainers = sample_trainers(state.seed, fixed.clients, excluded, fixed.trainers)
        return tuple(sorted({*trainers, *state.committee} - banned))

    def _decision(self) -> ledger_state.RoundDecided:
        state, fixed = self.state, self.state.deployment
        trainers = [client for client in self._active() if client not in state.committee]
        ranking = rank((client, float(self._rng.random())) for client in trainers)
        derived = sets_of(fixed, ranking)
        base, model, updates, scores, reveal, record = (self._new_digest() for _ in range(6))
        if self.published is not None:
            record = self.published.put(encode_record(self._record(trainers, base)))
        places = (1 << fixed.members) - 1
        return ledger_state.RoundDecided(
            state.round,
            ranking,
            derived.accepted,
            derived.elected(fixed.members, NO_DIGEST),
            *(base, model, updates, scores, reveal, record),
            NO_DIGEST,
            (int(self._rng.random() < 0.05), 0),
            (ClientId(0), ClientId(0)),
            (int(self._rng.integers(places)), places),
            NO_DIGEST,
            NO_DIGEST,
        )

    def _record(self, trainers: list[ClientId], base: Digest) -> RoundRecord:
        """Return a record in which every client's update is usable and all scores count."""
        number, members = self.state.round, sorted(self.state.committee)
        clients = tuple(sorted({*trainers, *members}))
        ranked = encoding.set_digest(clients)
        updates = tuple(UsableUpdate(client, self._new_digest()) for client in clients)
        told = (
            types.Scores(number, member, base, ranked, self._new_digest()) for member in members
        )
        scores = tuple(types.SignedScores(one, self._rng.bytes(65)) for one in told)
        return RoundRecord(number, base, updates, (), scores, ())

    def _new_digest(self) -> Digest:
        return Digest(self._rng.bytes(32))

    def head(self) -> Block:
        return self._blocks[-1].block

    def block(self, number: int) -> Block:
        if not 0 <= number < len(self._blocks):
            raise NotServedError(f"there is no block {number}")
        return self._blocks[number].block

    def finalized(self) -> int:
        newest = self.head().number
        return newest if self.final is None else min(self.final, newest)

    def call(self, to: str, data: bytes, block_number: int | None = None) -> bytes:
        """Return what `deployment` and `state` answer after a block, or the head."""
        state = self._blocks[-1 if block_number is None else block_number].state
        outputs = {name: abi.artifact().abi[name]["outputs"] for name in ("deployment", "state")}
        name = next((name for name in outputs if data == abi.selector(name)), None)
        if to != ADDRESS or name is None:
            raise NotServedError("this chain answers deployment() and state() of its contract")
        if name == "deployment":
            values = constructor_values(state.deployment)
        else:
            known: dict[str, Any] = {
                "stage": int(state.stage),
                "committee": encoding.set_digest(state.committee) if state.committee else NO_DIGEST,
                "registered": len(state.registry),
            }
            fields = [entry["name"] for entry in outputs[name][0]["components"]]
            values = tuple(known[f] if f in known else getattr(state, f) for f in fields)
        return encode([collapse_if_tuple(entry) for entry in outputs[name]], [values])

    def code(self, address: str) -> bytes:  # noqa: ARG002 - the port's
        return b""

    def logs(self, query: LogQuery) -> list[Log]:
        mined = self._blocks[max(0, query.first) : query.last + 1]
        return query.of(log for block in mined for log in block.logs)

    def transaction(self, transaction_hash: bytes) -> Transaction:
        raise NotServedError(f"no transaction made 0x{transaction_hash.hex()}")

    def receipt(self, transaction_hash: bytes) -> Receipt | None:
        """Return no receipt."""
