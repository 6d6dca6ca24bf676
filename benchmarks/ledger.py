"""Gas and time of the two transactions of a round, with signed but made-up content.

    python -m benchmarks.ledger                   print medians for four sizes of committee
    python -m benchmarks.ledger --gas-snapshot    write `contracts/gas_snapshot.json`
    python -m benchmarks.ledger --rounds          print CPU times of whole rounds of `digits`

Measuring begins with the third round: earlier ones pay for storage that later ones overwrite.
Signing is not measured. Both ledgers recover every signature; the chain writes durably (synchronous
FULL). Keys are derived from a sentence: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, Row, T, keep, show, timed
from clients.configuration.loading import load
from clients.runs.open_run import open_memory_run, open_run
from ledger.chain.contract.deploy import DEPLOYMENT_GAS, creation_data
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.memory import MemoryLedger
from ledger.chain.ports import Receipt
from ledger.protocol import encoding, ledger_state, rounds, types
from ledger.protocol.inputs import primary_seat, sample_trainers
from ledger.protocol.judgement import sets_of
from ledger.protocol.parameters import majority
from ledger.protocol.rules.selection import rank
from ledger.protocol.signing import KeySigner, recovered, sign
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, Phase, SignedCommitment
from ledger.storage.blobs import FolderBlobs

Votes = tuple[ledger_state.SubmittedCertificate, ledger_state.SubmittedCertificate]
Decision = tuple[ledger_state.SubmittedDecision, Votes]
"""A decision with both certificates, ready to send."""


class RecordedRounds:
    """One deployed contract and its state, moved on by the executable specification."""

    def __init__(self, chain: EmbeddedChain, members: int, trainers: int, clients: int) -> None:
        keys = (encoding.keccak256(b"PUBLIC TEST KEY of client %d" % i) for i in range(clients))
        self._keys = sorted(map(KeySigner, keys), key=attrgetter("address"))
        addresses = enumerate(key.address for key in self._keys)
        registry = [encoding.RegisteredClient(address, 10 + i) for i, address in addresses]
        words = [encoding.registry_word(client) for client in registry]
        _, batches = ledger_state.registry_batches(words)
        deployment = deployment_of(
            words, members, trainers, config=digest_of("configuration", 0), deadline_blocks=4
        )
        receipt = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
        if receipt.contract_address is None:
            raise RuntimeError("the chain gave no address for the new contract")
        self.chain = chain
        self.ledger = LedgerWriter(chain, receipt.contract_address, receipt.block_number)
        self.state = rounds.deployed(deployment, self.ledger.domain())
        self.registrations = [receipt]
        for batch, rest in batches:
            self.registrations.append(self._send("register_clients", batch, rest))

    @property
    def trainers(self) -> tuple[ClientId, ...]:
        """S_b of the open round, ascending."""
        state, deployment = self.state, self.state.deployment
        return sample_trainers(state.seed, deployment.clients, state.committee, deployment.trainers)

    @property
    def active(self) -> tuple[ClientId, ...]:
        """Trainers and members of the open round, ascending."""
        return tuple(sorted({*self.trainers, *self.state.committee}))

    def signed_commitments(self, clients: Iterable[ClientId]) -> list[SignedCommitment]:
        number, domain, signed = self.state.round, self.state.domain, []
        for client in clients:
            word = encoding.commitment_of(client, digest_of("payload", number))
            promised = types.Commitment(number, client, word)
            signed.append(SignedCommitment(promised, sign(self._keys[client], domain, promised)))
        return signed

    def certified(self, *, other_repliers: bool = False) -> Decision:
        """Return an honest decision; with other repliers, the contract looks up most members."""
        state, decision = self.state, self._decision()
        size = len(state.committee)
        first, second = (primary_seat(state.seed, phase, 0, size) for phase in Phase)
        common = [place for place in range(size) if place not in {first, second}]
        # In the smallest committees the primary of one phase has to reply in the other.
        again = [*(common[::-1] if other_repliers else common), first]
        certificates = (
            self._certificate(decision, Phase.AGGREGATION, first, [*common, second]),
            self._certificate(decision, Phase.ELECTION, second, again),
        )
        return decision, certificates

    def commit(self, signed: Sequence[SignedCommitment]) -> Receipt:
        return self._send("commit_updates", self.state.round, signed)

    def decide(self, made: Decision) -> Receipt:
        return self._send("decide", self.state.round, *made)

    def abandon(self) -> Receipt:
        """Let the deadline pass and end the round; return the receipt."""
        deadline = self.state.opened_block + self.state.deployment.deadline_blocks
        self.chain.mine(max(0, deadline - self.chain.head().number - 1))
        return self._send("abandon_round", self.state.round)

    def _decision(self) -> ledger_state.SubmittedDecision:
        number = self.state.round
        order = sorted(self.trainers, key=lambda client: digest_of("place", client))
        return ledger_state.SubmittedDecision(
            committee=self.state.committee,
            ranking=rank((client, 1.0 + place / 7) for place, client in enumerate(order)),
            base=self.state.commitments,
            model=digest_of("model", number),
            updates_root=digest_of("updates", number),
            scores_root=digest_of("scores", number),
            reveal=digest_of("reveal", number),
            record=digest_of("record", number),
            incidents=NO_DIGEST,
        )

    def _certificate(
        self,
        decision: ledger_state.SubmittedDecision,
        phase: Phase,
        primary: int,
        candidates: Sequence[int],
    ) -> ledger_state.SubmittedCertificate:
        state = self.state
        able = [place for place in candidates if place != primary]
        places = sorted(able[: state.deployment.replies])
        sets = sets_of(state.deployment, decision.ranking)
        chosen = encoding.set_digest(sets.voted_on(phase))
        result = encoding.aggregation_result(decision.opening())
        request = types.VoteKind.REQUEST
        vote = types.Vote(request, state.round, phase, 0, decision.base, chosen, result)
        reply = replace(vote, kind=types.VoteKind.REPLY)
        keys = [self._keys[member] for member in state.committee]
        return ledger_state.SubmittedCertificate(
            view=0,
            set_digest=chosen,
            request=sign(keys[primary], state.domain, vote),
            signers=sum(1 << place for place in places),
            replies=tuple(sign(keys[place], state.domain, reply) for place in places),
        )

    def _send(self, call: str, *arguments: Any) -> Receipt:
        """Send a transaction, and move the state by the specification's function of its name."""
        head = self.chain.head()
        receipt: Receipt = getattr(self.ledger, call)(*arguments)
        block = ledger_state.BlockContext(head.number + 1, Digest(head.hash))
        self.state, _ = getattr(rounds, call)(self.state, *arguments, block)
        return receipt


def digest_of(what: str, number: int) -> Digest:
    """Return the digest of a name and a number."""
    return encoding.sha256(f"{what} {number}".encode())


def deployment_of(
    words: Sequence[int], members: int, trainers: int, **other: Any
) -> ledger_state.Deployment:
    """Return a deployment of registered clients that accepts the first two fifths of a ranking."""
    values: dict[str, Any] = {
        "registry": ledger_state.registry_batches(words)[0],
        "clients": len(words),
        "trainers": trainers,
        "members": members,
        "aggregation_ppm": 400_000,
        "form": types.AcceptanceForm.FIRST,
        "rounds": 2**32 - 1,
        "commit_blocks": 2,
        "replies": majority(members),
        "beacon": types.Beacon.NONE,
        "model": digest_of("model", 0),
    }
    return ledger_state.Deployment(**values | other)


SIZES = ((4, 6), (7, 20), (21, 65), (43, 65))  # committee members and trainers
CLIENTS = 1075
ACTIVE = (30, 100, 300)  # of three times as many clients
GAS_SNAPSHOT = ROOT / "contracts" / "gas_snapshot.json"


def main() -> None:
    """Write the gas snapshot, or print the costs of each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gas-snapshot", action="store_true", help="write the gas snapshot")
    parser.add_argument("--rounds", action="store_true", help="whole rounds, three sizes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.gas_snapshot:
            keep(GAS_SNAPSHOT, gas_snapshot(Path(folder)))
        elif arguments.rounds:
            show([whole_rounds(Path(folder), active) for active in ACTIVE], "rounds of digits")
        else:
            rows = [round_costs(Path(folder), size) for size in SIZES]
            show(rows, "ledger", heads=[f"{members}, {trainers}" for members, trainers in SIZES])


def whole_rounds(folder: Path, active: int) -> Row:
    """Return the median CPU milliseconds of a round, with training and two fifths as members."""
    sizes = f"protocol.clients={3 * active}", "protocol.active_rate=0.333333", "machine.workers=1"
    on_chain, in_memory = (
        load("digits", settings=(*sizes, f'machine.ledger="{ledger}"'))
        for ledger in ("chain", "memory")
    )
    row: Row = {"active": active}
    with (
        EmbeddedChain.create(folder / f"{active}.sqlite") as chain,
        open_run(folder, f"chain-{active}", on_chain, chain, FolderBlobs(folder / "blobs")) as one,
        open_memory_run(folder, f"memory-{active}", in_memory) as other,
    ):
        for ledger, run in (("memory", other), ("chain", one)):
            cpu = [timed(run.simulation.play_round)[1].cpu for _ in range(11)][1:]
            row[f"{ledger} ms"] = round(1000 * median(cpu), 1)
            row[f"{ledger}, ms a client"] = round(1000 * median(cpu) / active, 2)
    return row


def gas_snapshot(folder: Path) -> dict[str, dict[str, int]]:
    """Return the gas of every transaction, for each size "C members, n trainers"."""
    snapshot: dict[str, dict[str, int]] = {}
    for members, trainers in SIZES:
        path = folder / f"{members}-{trainers}.sqlite"
        with EmbeddedChain.create(path, synchronous="NORMAL") as chain:
            gas = _gas_of(RecordedRounds(chain, members, trainers, CLIENTS))
            snapshot[f"{members} members, {trainers} trainers"] = gas
    return snapshot


def _gas_of(run: RecordedRounds) -> dict[str, int]:
    def committed(clients: Sequence[ClientId]) -> int:
        return run.commit(run.signed_commitments(clients)).gas_used

    deployed, *registered = (receipt.gas_used for receipt in run.registrations)
    gas = {"deployment": deployed, "registration, each client": sum(registered) // CLIENTS}
    for name in ("first", "second", "third"):
        commit = committed(run.active)
        decide = run.decide(run.certified()).gas_used
        if name != "second":
            gas[f"commit_updates, {name} round"] = commit
            gas[f"commit_updates, {name} round, each client"] = commit // len(run.active)
            gas[f"decide, {name} round"] = decide
    committed(run.active)
    others = run.decide(run.certified(other_repliers=True))
    gas["decide, other repliers in the election"] = others.gas_used
    committed(run.active[::2])
    gas["commit_updates, half of it sent ahead"] = committed(run.active)
    gas["abandon_round"] = run.abandon().gas_used
    return gas


def round_costs(folder: Path, size: tuple[int, int]) -> dict[str, float]:
    """Return the median gas and milliseconds of a round, on the chain and in memory."""
    members, trainers = size
    with EmbeddedChain.create(folder / f"{members}-{trainers}-timed.sqlite") as chain:
        run = RecordedRounds(chain, members, trainers, CLIENTS)
        memory = MemoryLedger(run.state.deployment, run.state.domain)
        words = [encoding.registry_word(client) for client in run.state.registry]
        for batch, rest in ledger_state.registry_batches(words)[1]:
            memory.register_clients(batch, rest)
        measured = [_record_round(run, memory) for _ in range(7)][2:]
        others = [_record_round(run, memory, other_repliers=True) for _ in range(5)]
    row: dict[str, float] = {"C": members, "n": trainers}
    row |= {key: round(median(costs[key] for costs in measured), 1) for key in measured[0]}
    row["decide gas with other repliers"] = median(costs["decide gas"] for costs in others)
    chain_cpu = row["commit CPU ms"] + row["decide CPU ms"]
    memory_cpu = row["memory commit CPU ms"] + row["memory decide CPU ms"]
    return row | {"chain / memory, CPU": round(chain_cpu / memory_cpu, 1)}


def _record_round(
    run: RecordedRounds, memory: MemoryLedger, *, other_repliers: bool = False
) -> dict[str, float]:
    """Decide one round on both ledgers; return gas and milliseconds of its two transactions."""
    number, signed = run.state.round, run.signed_commitments(run.active)
    costs: dict[str, float] = {}

    def spent(name: str, send: Callable[[], T]) -> T:
        recovered.cache_clear()
        result, seconds = timed(send)
        costs[f"{name} ms"], costs[f"{name} CPU ms"] = seconds.wall * 1e3, seconds.cpu * 1e3
        return result

    spent("memory commit", lambda: memory.commit_updates(number, signed))
    costs["commit gas"] = spent("commit", lambda: run.commit(signed)).gas_used
    made = run.certified(other_repliers=other_repliers)
    spent("memory decide", lambda: memory.decide(number, *made))
    costs["decide gas"] = spent("decide", lambda: run.decide(made)).gas_used
    if memory.state().head != run.state.head:
        raise RuntimeError(f"the memory ledger has another head after round {number}")
    return costs


if __name__ == "__main__":
    main()
