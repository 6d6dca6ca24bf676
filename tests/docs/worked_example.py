"""The worked example of the protocol: one round's bytes, from the run document to the head.

    python -m tests.docs.worked_example          # rewrites the blocks of its page

Never edit the blocks by hand. Keys are PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import Samples
from clients.datasets.own_samples import samples_digest_of
from clients.training.plain_trainer import batches
from clients.training.port import LocalTraining
from ledger.protocol import encoding
from ledger.protocol import inputs as bound_inputs
from ledger.protocol.documents.envelope import (
    Attestation,
    Body,
    Envelope,
    PhaseCertificate,
    Proposal,
    PublishedEnvironment,
    PublishedPayload,
    PublishedScores,
    Reply,
    encode_envelope,
)
from ledger.protocol.documents.record import (
    Incident,
    Incidents,
    encode_incidents,
    encode_record,
    encode_vector,
)
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import sha256, u32
from ledger.protocol.inputs import (
    Evidence,
    Inputs,
    drawn_committee,
    participants_of,
    round_closing,
    training_seed,
    window_end,
)
from ledger.protocol.judgement import Judgement, score_leaves, update_leaves
from ledger.protocol.ledger_state import (
    BanLink,
    DecisionLink,
    MinedCommitment,
    deployment_of,
    domain_of,
    registry_batches,
)
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload, decode_q8, encode_q8
from ledger.protocol.rules.selection import elect
from ledger.protocol.signing import KeySigner, domain_separator, sign, typed_digest
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment, replay_witness
from ledger.protocol.types import (
    NO_DIGEST,
    ClientId,
    Commitment,
    Digest,
    Domain,
    EnvironmentStatement,
    IncidentKind,
    Phase,
    SignedCommitment,
    SignedVote,
    Vote,
    VoteKind,
)
from tests.docs import second_rules
from tests.protocol.support import f32, registry_of, signers
from tests.support.keys import DOMAIN
from tests.support.rounds import ClosedRound, OpenRound

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "protocol" / "example.md"
BLOCK = re.compile(
    r"^```text (?P<name>example[\w-]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
WIDTH = 48  # bytes of a line
SETTINGS: dict[str, Any] = {
    "clients": 12,
    "active_ppm": 833_333,
    "committee_ppm": 300_000,
    "aggregation_ppm": 400_000,
    "rounds": 3,
    "dimension": 8,
    "strategy": 3,
}
PARAMETERS = Parameters(**SETTINGS)
LAYOUT = (("weight", (2, 3)), ("bias", (2,)))
OPENED = 10
FIRST_MODEL = f32(0.5, -0.25, 0, 0, 0, 0, 0, 0)
CLIENTS = SETTINGS["clients"]
DATA_ROOT = bound_inputs.data_root(
    [10] * CLIENTS, [sha256(bytes([client])) for client in range(CLIENTS)]
)


@dataclass(frozen=True)
class Example:
    """One decided round and everything that its blocks show."""

    run: bytes
    inputs: Inputs
    payloads: dict[ClientId, bytes]
    vectors: dict[ClientId, bytes]
    judgement: Judgement
    votes: tuple[SignedVote, SignedVote]
    replies: tuple[SignedVote, ...]
    incidents: bytes
    signers: tuple[int, int]

    @property
    def record(self) -> bytes:
        return encode_record(self.judgement.record)


def example() -> Example:
    """Return round 1 of a run of twelve clients: three members, seven trainers.

    One trainer commits nothing, one publishes a malformed payload, one an opposite update and one
    a long update. One member publishes false distances. The primary of view 0 of the aggregation
    signs two requests.
    """
    registry = registry_of(CLIENTS)
    first = sha256(encoding.vector_bytes(FIRST_MODEL))
    document = RunDocument(
        PARAMETERS, registry, first, LAYOUT, {"note": "a round worked by hand"}, data_root=DATA_ROOT
    )
    run = encode_run(document)
    deployment, _ = deployment_of(PARAMETERS, sha256(run), registry, first)
    domain = domain_of(deployment, DOMAIN.chain_id, DOMAIN.contract, NO_DIGEST)
    seed = encoding.first_seed(sha256(run), NO_DIGEST)
    committee = drawn_committee(seed, CLIENTS, PARAMETERS.members, ())
    seats = participants_of(PARAMETERS, registry, 1, seed, committee)
    late, odd, opposite, long = seats.trainers[:4]
    scale = {opposite: -1.0, long: 2.25}
    payloads = {
        client: encoding.vector_bytes(update(place, scale.get(client, 1.0)))
        for place, client in enumerate(seats.active)
        if client != late
    }
    payloads[odd] = payloads[odd][:6]
    mined = [
        MinedCommitment(OPENED + 1, client, encoding.commitment_of(client, sha256(payload)))
        for client, payload in payloads.items()
    ]
    closing = round_closing(window_end(PARAMETERS, OPENED), seats.expected, OPENED + 9, mined)
    assert closing is not None
    inputs = Inputs(PARAMETERS, domain, registry, 1, seed, seats, closing)
    published = {client: Payload.of(data) for client, data in payloads.items()}
    closed = ClosedRound(inputs, Evidence(FIRST_MODEL, published, {}), signers())
    vectors = {}
    for member in sorted(committee):
        vector = closed.vector(member)
        if member == committee[2]:
            vector = replace(vector, distances=vector.distances * 2)
        vectors[member] = encode_vector(vector)
        closed = closed.publish(member, vectors[member])
    judgement = closed.judged()
    votes, replies, signed_by = voted(inputs, judgement)
    incidents = encode_incidents(went_wrong(inputs, judgement))
    return Example(run, inputs, payloads, vectors, judgement, votes, replies, incidents, signed_by)


def update(place: int, scale: float) -> NDArray[np.float32]:
    """Return an update that shares one direction with the others, and leans its own way.

    It has four numbers of one size, so its direction and all cosines are exact on every machine.
    """
    numbers = [1.0] + [0.0] * 7
    for step in (0, 1, 3 - place % 2):
        numbers[1 + (place + step) % 7] = 1.0
    return f32(*(scale * number + 0.0 for number in numbers))


def open_round(inputs: Inputs) -> OpenRound:
    return ClosedRound(inputs, Evidence(FIRST_MODEL, {}, {}), signers()).open_round


def voted(
    inputs: Inputs, judgement: Judgement
) -> tuple[tuple[SignedVote, SignedVote], tuple[SignedVote, ...], tuple[int, int]]:
    """Return both requests, the replies of the aggregation and both bitmaps of signers."""
    signing_round, committee = open_round(inputs), inputs.participants.committee
    accused = signing_round.primary(Phase.AGGREGATION, 0)
    second = next(v for v in range(1, 32) if signing_round.primary(Phase.AGGREGATION, v) != accused)
    certificates = []
    for phase, view in ((Phase.AGGREGATION, second), (Phase.ELECTION, 0)):
        chosen, base = judgement.set_digest(phase), inputs.closing.base
        request = signing_round.request(phase, view, base, chosen, judgement.result)
        others = [m for m in committee if m != signing_round.primary(phase, view)]
        certificates.append(signing_round.certificate(request, others))
    first, last = certificates
    bitmaps = (first.signers(committee), last.signers(committee))
    return (first.request, last.request), first.replies, bitmaps


def went_wrong(inputs: Inputs, judgement: Judgement) -> Incidents:
    """Return the incidents: two requests of the first primary."""
    where = (inputs.round, Phase.AGGREGATION, 0, inputs.closing.base)
    accused = open_round(inputs).primary(Phase.AGGREGATION, 0)
    chosen = judgement.set_digest(Phase.AGGREGATION)
    pair = tuple(
        open_round(inputs).vote(Vote(VoteKind.REQUEST, *where, chosen, result), accused)
        for result in sorted([judgement.result, sha256(b"another result")])
    )
    found = [Incident(Phase.AGGREGATION, 0, accused, IncidentKind.EQUIVOCATION, pair)]
    return Incidents(inputs.round, inputs.closing.base, tuple(found))


def blocks() -> dict[str, str]:
    """Return the text of every block of the example by its name."""
    told = example()
    inputs, judgement = told.inputs, told.judgement
    opening, record = judgement.opening, judgement.record
    committee, trainers = inputs.participants.committee, inputs.participants.trainers
    member = record.scores[0].scores.member
    request, election = told.votes
    certificate = PhaseCertificate(
        request.vote.view,
        request.vote.set_digest,
        request.signature,
        tuple((reply.member, reply.signature) for reply in told.replies),
    )
    digest, _ = registry_batches([encoding.registry_word(client) for client in inputs.registry])
    payload = told.payloads[trainers[2]]
    commitment = Commitment(1, trainers[2], inputs.closing.commitments[trainers[2]])
    views = (request.vote.view, election.vote.view)
    votes = encoding.votes_digest(views, told.signers, sha256(told.incidents))
    sets = (judgement.set_digest(Phase.AGGREGATION), judgement.set_digest(Phase.ELECTION))
    before, head = (1, inputs.seed, inputs.closing.base), sha256(told.run)
    seed = encoding.next_seed(inputs.seed, opening.reveal, NO_DIGEST)
    elected = elect(judgement.ranking.candidates, PARAMETERS.members, seed)

    def envelope(client: ClientId, body: Body) -> str:
        return hexes({"": encode_envelope(Envelope(inputs.domain, 1, client, body))})

    signed = SignedCommitment(commitment, sign(signers()[trainers[2]], inputs.domain, commitment))
    stated = environment_of(trainers[2], inputs.domain)
    published = PublishedScores(record.scores[0], told.vectors[member])
    texts = {
        "keys": hexes(
            {f"private key {i}": key for i, key in enumerate(private_keys())}
            | {f"address {i}": client.address for i, client in enumerate(inputs.registry)}
        ),
        "domain": hexes(
            {
                "chain id": u64_of(inputs.domain.chain_id),
                "contract": inputs.domain.contract,
                "salt": inputs.domain.salt,
                "domain separator": domain_separator(inputs.domain),
            }
        ),
        "run": document(told.run),
        "registry": hexes(
            {
                f"word {i}": encoding.registry_word(c).to_bytes(32)
                for i, c in enumerate(inputs.registry)
            }
            | {"digest": digest}
        ),
        "opening": lines(
            {"seed_1": inputs.seed.hex(), "committee": list(committee), "trainers": list(trainers)}
        ),
        "payloads": hexes(
            {"first model": encoding.vector_bytes(FIRST_MODEL)}
            | {f"payload {client}": data for client, data in told.payloads.items()}
        ),
        "commitments": commitments(told),
        "payload-q8": rounded_payload(),
        "peers": peers(),
        "vector": document(told.vectors[member]),
        "record": document(told.record),
        "ranking": lines(
            {f"word {i}": f"{word:064x}" for i, word in enumerate(judgement.ranking.words)}
            | {
                "accepted": list(judgement.ranking.accepted),
                "candidates": list(judgement.ranking.candidates),
                "set digest accepted": sets[0].hex(),
                "set digest candidates": sets[1].hex(),
                "next model": encoding.vector_bytes(judgement.model).hex(),
            }
        ),
        "leaves": leaves(told),
        "result": hexes(
            {
                field.name.replace("_", " "): getattr(opening, field.name)
                for field in fields(opening)
            }
            | {"result": judgement.result}
        ),
        "signing": signing(told, commitment),
        "incidents": document(told.incidents),
        "envelope-1": envelope(trainers[2], signed),
        "envelope-2": envelope(trainers[2], PublishedPayload(sha256(payload))),
        "envelope-3": envelope(member, published),
        "envelope-4a": envelope(request.member, Proposal(request, opening, told.record)),
        "envelope-4b": envelope(election.member, Proposal(election, certificate=certificate)),
        "envelope-5": envelope(told.replies[0].member, Reply(told.replies[0])),
        "envelope-6": envelope(trainers[2], stated),
        "training": training(inputs.seed, trainers[2]),
        "envelope-7": envelope(trainers[2], attestation_of(trainers[2], stated, told)),
        "head": lines(
            {
                "views": list(views),
                "signers": list(told.signers),
                "votes digest": votes.hex(),
                "seed_2": seed.hex(),
                "next committee": list(elected),
                "head_0": head.hex(),
                "head_1": DecisionLink(
                    *before, sets[0], encoding.set_digest(elected), judgement.result, votes
                )
                .head_after(head)
                .hex(),
                "head_0 and a ban": BanLink(1, open_round(inputs).primary(Phase.AGGREGATION, 0))
                .head_after(head)
                .hex(),
            }
        ),
    }
    return {f"example-{name}": text for name, text in texts.items()}


def rounded_payload() -> str:
    """Return a payload of form q8, with some numbers of its update as trained and as read."""
    update, places = np.zeros(66, np.float32), [0, 1, 64, 65]
    update[places] = [1.0, -0.3, 0.004, -0.0001]
    data = encode_q8(update)
    said = decode_q8(data, len(update))
    numbers = {
        "trained": [f"{number:.6g}" for number in update[places].tolist()],
        "read": [f"{number:.6g}" for number in said[places].tolist()],
    }
    shown_numbers = {name: ", ".join(values) for name, values in numbers.items()}
    return lines(shown_numbers) + document(data)


CROWDED = (
    (2, 2, 2, 0, 0, 0, 0, 0),
    (2, 0, 3, 2, 0, 0, 0, 0),
    (1, 0, 0, 2, 2, 0, 0, 0),
    (2, 0, 0, 0, 2, 3, 0, 0),
    (2, 0, 0, 0, 0, 2, 2, 0),
    (2, 2, 0, 0, 0, 0, 2, 0),
    (0, 1, -1, 1, -1, 1, -1, 1),
    (0, 2, -2, 2, -2, 2, -2, -1),
    (1, 8, -8, 8, -8, 8, -8, 0),
)
"""Updates of nine clients; the last three pull together."""
TRAVEL = (4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def peers() -> str:
    """Return updates of a later round, their distances with a travel, and the next model."""
    updates = {k: tuple(map(float, numbers)) for k, numbers in enumerate(CROWDED)}
    still = (0.0,) * len(TRAVEL)
    found = second_rules.peers(updates, second_rules.travel_of(TRAVEL, still))
    accepted = second_rules.accepted_of(second_rules.ranking_of(found.distances), 1)
    model = second_rules.next_model(still, accepted, updates)
    columns = {"q": found.q, "c": found.c, "f": found.f, "distances": found.distances}
    return lines(
        {"travel": [f"{number:g}" for number in TRAVEL]}
        | {f"update {k}": list(numbers) for k, numbers in enumerate(CROWDED)}
        | {"b": f"{found.b:.7g}", "base": f"{found.base:.7g}"}
        | {name: [f"{value:.7g}" for value in values.values()] for name, values in columns.items()}
        | {
            "accepted": accepted,
            "norms": [second_rules.exact_norm(numbers).hex() for numbers in updates.values()],
            "bound": second_rules.bound_of(updates.values()).hex(),
            "next model": encoding.vector_bytes(f32(*model)).hex(),
        }
    ).replace("'", "")


def commitments(told: Example) -> str:
    """Return every commitment with the running digest after it."""
    running, values = NO_DIGEST, dict[str, bytes]()
    for client, word in told.inputs.closing.commitments.items():
        running = encoding.commitments_digest(running, client, word)
        values |= {f"commitment {client}": word, f"digest after {client}": running}
    assert running == told.inputs.closing.base
    return hexes(values)


def leaves(told: Example) -> str:
    """Return the hashes of both trees' leaves."""
    judgement = told.judgement
    updates = update_leaves(
        judgement.ranking.words, judgement.ranking.accepted, judgement.record.payloads()
    )
    values = {
        f"update {leaf[0]}": encoding.leaf_hash(encoding.UPDATE_LEAF, leaf) for leaf in updates
    }
    values |= {
        f"scores {leaf[0]}": encoding.leaf_hash(encoding.SCORES_LEAF, leaf)
        for leaf in score_leaves(judgement.record)
    }
    return hexes(values)


def signing(told: Example, commitment: Commitment) -> str:
    """Return the EIP-712 digest of one message of each type, with its signature."""
    request, reply, domain = told.votes[0], told.replies[0], told.inputs.domain
    scores = told.judgement.record.scores[0]
    signature = sign(signers()[commitment.client], domain, commitment)
    values = {
        "Commitment": typed_digest(domain, commitment),
        "Commitment signature": signature,
        "Scores": typed_digest(domain, scores.scores),
        "Scores signature": scores.signature,
        "Request": typed_digest(domain, request.vote),
        "Request signature": request.signature,
        "Reply": typed_digest(domain, reply.vote),
        "Reply signature": reply.signature,
        "Reply r": reply.signature[:32],
        "Reply vs": compact(reply.signature),
    }
    place = told.inputs.seed + b"\1" + u32(request.vote.view)
    values["primary's hash"] = encoding.keccak256(place)
    return hexes(values)


def environment_of(client: ClientId, domain: Domain) -> PublishedEnvironment:
    """Return a client's statement of its environment in round 1."""
    environment = TrainingEnvironment(
        "2.13.0+cpu", "lockstep", "x86_64 AuthenticAMD family 25 model 1", "avx2", "cpu", 1
    )
    statement = EnvironmentStatement(1, client, environment.digest)
    return PublishedEnvironment(environment, sign(signers()[client], domain, statement))


def training(seed: Digest, client: ClientId) -> str:
    """Return what repeated training follows from: a client's batches, and a digest of samples."""
    job = training_seed(seed, client)
    settings = LocalTraining(learning_rate=0.5, batch_size=2, local_steps=4)
    epochs = LocalTraining(learning_rate=0.5, batch_size=2, local_epochs=1)
    samples = Samples(f32(0, 0.5, 1, -1).reshape(2, 2), np.array([0, 1]))
    return lines(
        {
            f"job of client {client}": job.hex(),
            "four steps": [batch.tolist() for batch in batches(job, 5, settings)],
            "one epoch": [batch.tolist() for batch in batches(job, 5, epochs)],
            "digest of samples": samples_digest_of(samples, bytes([7]) * 32).hex(),
        }
    )


def attestation_of(client: ClientId, stated: PublishedEnvironment, told: Example) -> Attestation:
    """Return the attestation of client 0, as an auditor, with the losses 0.5 and 0.25."""
    auditor, environment = signers()[0], stated.environment
    witness, run = replay_witness(auditor.address, f32(0.5, 0.25).tobytes()), sha256(told.run)
    unsigned = Attestation(
        auditor.address, run, ReplayVerdict.SAME, environment, witness, bytes(65)
    )
    signature = sign(auditor, told.inputs.domain, unsigned.statement(1, client))
    return replace(unsigned, signature=signature)


def compact(signature: bytes) -> bytes:
    """Return s with the parity of R in its top bit (EIP-2098)."""
    return (int.from_bytes(signature[32:64]) | (signature[64] - 27) << 255).to_bytes(32)


def private_keys() -> Sequence[bytes]:
    """Return the example's private keys, ascending by address."""
    keys = {signer.address: signer for signer in signers()}
    secrets = {
        signer_of(secret): secret
        for secret in (encoding.keccak256(b"PUBLIC TEST KEY of client %d" % i) for i in range(16))
    }
    return [secrets[address] for address in sorted(keys)][:CLIENTS]


def signer_of(secret: bytes) -> bytes:
    return KeySigner(secret).address


def u64_of(value: int) -> bytes:
    """Return a number as eight bytes."""
    return value.to_bytes(8)


def document(data: bytes) -> str:
    """Return a document's size, digest and bytes."""
    return lines({"size": len(data), "sha256": sha256(data).hex()}) + hexes({"": data})


def lines(values: Mapping[str, object]) -> str:
    width = max(map(len, values))
    return "".join(f"{name:<{width}}  {value}\n" for name, value in values.items())


def hexes(values: Mapping[str, bytes]) -> str:
    """Return bytes in hex, named and wrapped."""
    width = max(map(len, values))
    text = ""
    for name, data in values.items():
        rows = [data[start : start + WIDTH].hex() for start in range(0, len(data), WIDTH)]
        for number, row in enumerate(rows):
            label = (name if number == 0 else "").ljust(width)
            text += f"{label}  {row}\n".lstrip(" ") if not width else f"{label}  {row}\n"
    return text


def rewritten(document_text: str) -> str:
    """Return the document with every block as it should be."""
    texts = blocks()

    def block(found: re.Match[str]) -> str:
        return f"```text {found['name']}\n{texts[found['name']]}```"

    return BLOCK.sub(block, document_text)


def shown(document_text: str) -> dict[str, str]:
    return {found["name"]: found["text"] for found in BLOCK.finditer(document_text)}


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text("utf-8")), "utf-8")
