"""`docs/protocol.md` is what the code does, and is enough to do it again without the code."""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
import struct
from dataclasses import fields
from importlib import resources
from typing import Any, get_args

import msgpack
import pytest
from eth_abi.abi import encode as abi_encode
from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey, Signature
from hypothesis import given
from hypothesis import strategies as st
from ledger.protocol.rules.registry import DISTANCES, REFERENCES, SCORINGS, THRESHOLDS

from clients.local_sgd import LocalTraining, batches
from ledger.audit.checks.all_checks import step_of_field
from ledger.protocol import canonical, consensus, ledger_state, parameters, sampling, signing
from ledger.protocol.documents import envelope, vector
from ledger.protocol.documents.envelope import EnvelopeKind, decode_envelope
from ledger.protocol.documents.incidents import decode_incidents
from ledger.protocol.documents.record import decode_record
from ledger.protocol.documents.run import decode_run
from ledger.protocol.documents.vector import decode_vector
from ledger.protocol.parameters import Parameters
from ledger.protocol.payload_forms import PAYLOAD_FORMS
from ledger.storage.blobs import MAX_BLOB_BYTES
from tests.docs import second_training
from tests.docs.worked_example import DOCUMENT, blocks, example, rewritten, shown

TEXT = DOCUMENT.read_text("utf-8")
BLOCKS = shown(TEXT)
ABI: list[dict[str, Any]] = json.loads(
    (resources.files("contracts") / "artifacts" / "committee_ledger.json").read_text()
)["abi"]


def section(title: str) -> str:
    """Return the text under a heading, up to the next of any level."""
    found = re.search(
        rf"^#+ (?:\d+ )?{re.escape(title)}\n(.*?)(?=^#)", TEXT, re.MULTILINE | re.DOTALL
    )
    assert found, title
    return found[1]


def named(name: str) -> dict[str, str]:
    """Return the named values of a block."""
    values: dict[str, str] = {}
    last = ""
    for line in BLOCKS[f"example-{name}"].splitlines():
        if "  " not in line:
            continue  # the bytes of a document
        label, _, value = line.rpartition("  ") if not line.endswith("]") else line.partition("  ")
        last = label.strip() or last
        values[last] = values.get(last, "") + value.strip()
    return values


def raw(name: str, key: str) -> bytes:
    return bytes.fromhex(named(name)[key])


def data(name: str) -> bytes:
    """Return the bytes of a document's block, after its size and digest if it has them."""
    lines = [line for line in BLOCKS[f"example-{name}"].splitlines() if " " not in line.strip()]
    return bytes.fromhex("".join(lines))


def test_every_block_is_as_the_code_computes_it() -> None:
    found = blocks()
    assert set(BLOCKS) == set(found)
    for name, text in found.items():
        assert BLOCKS[name] == text, name
    assert rewritten(TEXT) == TEXT


def test_a_changed_block_is_noticed_and_mended() -> None:
    spoiled = TEXT.replace(BLOCKS["example-head"].splitlines()[0], "views  [9, 9]")
    assert shown(spoiled)["example-head"] != BLOCKS["example-head"]
    assert rewritten(spoiled) == TEXT


def test_the_documents_of_the_example_can_be_read() -> None:
    run = decode_run(data("run"))
    record = decode_record(data("record"))
    assert len(run.registry) == run.parameters.clients == 8
    assert [dropout.reason for dropout in record.dropouts] == [1, 3]
    assert [entry.reason for entry in record.refused] == [6]
    assert decode_vector(data("vector")).member == record.scores[0].scores.member
    assert [incident.kind for incident in decode_incidents(data("incidents")).incidents] == [4]
    domain = example().inputs.domain
    kinds = [
        decode_envelope(data(f"envelope-{n}"), domain).kind
        for n in ("1", "2", "3", "4a", "4b", "5", "6", "7")
    ]
    assert kinds == [1, 2, 3, 4, 4, 5, 6, 7]
    assert set(kinds) == set(EnvelopeKind)


def unpacked(name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgpack.unpackb(data(name))
    return found


def words(*values: int | bytes) -> bytes:
    return b"".join(v if isinstance(v, bytes) else v.to_bytes(32) for v in values)


def typed(kind: str, *values: int | bytes) -> bytes:
    struct_hash = keccak(words(keccak(kind.encode()), *values))
    return bytes(keccak(b"\x19\x01" + raw("domain", "domain separator") + struct_hash))


def signer(digest: bytes, signature: bytes) -> bytes:
    found = Signature(signature[:64] + bytes([signature[64] - 27]))
    return found.recover_public_key_from_msg_hash(digest).to_canonical_address()


def clients_digest(clients: list[int]) -> bytes:
    return bytes(keccak(abi_encode(["uint32[]"], [clients])))


def update(client: int) -> tuple[float, ...]:
    return struct.unpack("<2f", raw("payloads", f"payload {client}"))


def squared(one: int, other: int) -> float:
    return sum((a - b) ** 2 for a, b in zip(update(one), update(other), strict=True))


def places(text: str) -> list[int]:
    found: list[int] = json.loads(text)
    return found


class TestWithoutOurCode:
    """What a second verifier does: hashes, msgpack, ABI and elliptic curve from elsewhere."""

    committee = places(named("opening")["committee"])
    trainers = places(named("opening")["trainers"])
    seed = raw("opening", "seed_1")

    def test_keys_addresses_and_domain(self) -> None:
        keys = named("keys")
        addresses = [entry[0] for entry in unpacked("run")["registry"]]
        for client, address in enumerate(addresses):
            assert keys[f"address {client}"] == address.hex()
            secret = PrivateKey(bytes.fromhex(keys[f"private key {client}"]))
            assert secret.public_key.to_canonical_address() == address
        kind = (
            "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract,"
            "bytes32 salt)"
        )
        name, version = keccak(b"CMFL Ledger"), keccak(b"2")
        chain, contract = raw("domain", "chain id"), raw("domain", "contract")
        config, registry = raw("run", "sha256"), raw("registry", "digest")
        salt = keccak(config + registry + bytes(32))
        assert salt == raw("domain", "salt")
        where = (int.from_bytes(chain), int.from_bytes(contract), salt)
        separator = keccak(words(keccak(kind.encode()), name, version, *where))
        assert separator == raw("domain", "domain separator")

    def test_registry_and_seed_and_who_takes_part(self) -> None:
        run = unpacked("run")
        found = [int.from_bytes(address) << 64 | samples for address, samples in run["registry"]]
        shown_words = [int(value, 16) for key, value in named("registry").items() if "word" in key]
        assert found == shown_words
        digest = keccak(abi_encode(["uint256[]", "bytes32"], [found, bytes(32)]))
        assert digest == raw("registry", "digest")
        config = hashlib.sha256(data("run")).digest()
        assert config == raw("run", "sha256")
        assert keccak(config + bytes(32)) == self.seed
        drawn: list[int] = []
        draw = 0
        while len(drawn) < 3:
            client = int.from_bytes(keccak(self.seed + draw.to_bytes(4))) % 8
            drawn += [] if client in drawn else [client]
            draw += 1
        assert drawn == self.committee
        stream = hashlib.shake_256(self.seed + b"sample").digest(64)
        outside = [client for client in range(8) if client not in drawn]
        keys = {client: stream[8 * client : 8 * client + 8] for client in outside}
        assert sorted(sorted(outside, key=lambda c: (keys[c], c))[:5]) == self.trainers

    def test_a_rounded_payload_is_read(self) -> None:
        payload, shown_numbers = data("payload-q8"), BLOCKS["example-payload-q8"].splitlines()[1]
        form, low = struct.unpack(">Bh", payload[:3])
        blocks_of_64 = [struct.unpack("B64b", payload[at : at + 65]) for at in (3, 68)]
        assert (form, len(payload)) == (2, 3 + 65 * 2)
        numbers = [q * 2.0 ** (low + offset) for offset, *line in blocks_of_64 for q in line]
        assert [i for i, number in enumerate(numbers) if number] == [0, 1, 64, 65]
        read = [float(text) for text in shown_numbers.removeprefix("read").split(",")]
        assert [numbers[i] for i in (0, 1, 64, 65)] == pytest.approx(read, rel=1e-5)

    def test_commitments_and_base(self) -> None:
        running = bytes(32)
        values = named("commitments")
        for key in [key for key in values if key.startswith("commitment ")]:
            client = int(key.split()[1])
            payload = hashlib.sha256(raw("payloads", f"payload {client}")).digest()
            word = keccak(client.to_bytes(4) + payload)
            assert word.hex() == values[key]
            running = keccak(running + client.to_bytes(4) + word)
            assert running.hex() == values[f"digest after {client}"]
        assert unpacked("record")["base"] == running

    def test_the_record_tells_who_is_left_out_and_why(self) -> None:
        record = unpacked("record")
        usable = [client for client, _ in record["updates"]]
        for client, payload in record["updates"]:
            assert payload == hashlib.sha256(raw("payloads", f"payload {client}")).digest()
        (late, one, none), (odd, three, malformed) = record["dropouts"]
        assert (one, none, three) == (1, b"", 3)
        assert f"payload {late}" not in named("payloads")
        assert len(raw("payloads", f"payload {odd}")) == 6
        assert malformed == hashlib.sha256(raw("payloads", f"payload {odd}")).digest()
        registry = unpacked("run")["registry"]
        kind = f"Scores({signing.TYPES['Scores']})"
        claims = [*record["scores"], *(entry[:3] for entry in record["refused"])]
        for member, digest, signature in claims:
            about = (1, member, record["base"], clients_digest(usable), digest)
            assert signer(typed(kind, *about), signature) == registry[member][0]
        assert hashlib.sha256(data("vector")).digest() == record["scores"][0][1]

    def ranked(self) -> list[tuple[float, int]]:
        """Return the trainers with their distances, best first."""
        record = unpacked("record")
        usable = [client for client, _ in record["updates"] if client in self.trainers]
        counted = [member for member, _, _ in record["scores"]]
        return sorted((statistics.median(squared(k, c) for c in counted), k) for k in usable)

    def test_the_published_vector_is_true(self) -> None:
        vector = unpacked("vector")
        clients = struct.unpack(f">{len(vector['trainers']) // 4}I", vector["trainers"])
        published = struct.unpack(f"<{len(clients)}d", vector["distances"])
        assert list(published) == [squared(client, vector["member"]) for client in clients]

    def test_ranking_threshold_sets_and_model(self) -> None:
        ranked, values = self.ranked(), named("ranking")
        found = [struct.unpack(">Q", struct.pack(">d", d))[0] << 32 | k for d, k in ranked]
        assert [f"{word:064x}" for word in found] == [values[f"word {i}"] for i in range(3)]
        counted = [member for member, _, _ in unpacked("record")["scores"]]
        spread = [statistics.median(squared(o, c) for o in counted if o != c) for c in counted]
        middle = statistics.median(spread)
        threshold = middle + 3.0 * statistics.median(abs(x - middle) for x in spread)
        assert struct.pack(">d", threshold).hex() == values["threshold"]
        accepted = [client for distance, client in ranked if distance <= threshold]
        assert accepted == places(values["accepted"])
        elected = [client for _, client in ranked]
        assert elected == places(values["next committee"])
        assert clients_digest(accepted).hex() == values["set digest accepted"]
        assert clients_digest(elected).hex() == values["set digest next committee"]
        (only,) = accepted
        model = struct.unpack("<2f", raw("payloads", "first model"))
        moved = [w - 1.0 * (10 / 10 * x) for w, x in zip(model, update(only), strict=True)]
        assert struct.pack("<2f", *moved).hex() == values["next model"]

    def test_roots_reveal_and_result(self) -> None:
        payloads = dict(unpacked("record")["updates"])
        ranked, accepted = self.ranked(), places(named("ranking")["accepted"])
        hashes = {}
        for place, (distance, client) in enumerate(ranked):
            (bits,) = struct.unpack(">Q", struct.pack(">d", distance))
            leaf = words(client, payloads[client], place, bits, int(client in accepted))
            hashes[f"update {client}"] = keccak(keccak(leaf))
        for member, digest, _ in unpacked("record")["scores"]:
            hashes[f"scores {member}"] = keccak(keccak(words(member, digest)))
        assert {key: value.hex() for key, value in hashes.items()} == named("leaves")

        def pair(one: bytes, other: bytes) -> bytes:
            return bytes(keccak(min(one, other) + max(one, other)))

        a, b, c = sorted(value for key, value in hashes.items() if "update" in key)
        assert pair(pair(b, a), c) == raw("result", "updates root")
        one, other = (value for key, value in hashes.items() if "scores" in key)
        assert pair(one, other) == raw("result", "scores root")
        joined = b"".join(payloads[client] for client in sorted(k for _, k in ranked))
        assert keccak(joined) == raw("result", "reveal")
        assert hashlib.sha256(data("record")).digest() == raw("result", "record")
        model = raw("ranking", "next model")
        assert hashlib.sha256(model).digest() == raw("result", "model")
        *opening, result = (bytes.fromhex(value) for value in named("result").values())
        assert keccak(words(*(part.rjust(32, b"\0") for part in opening))) == result

    def test_typed_data_votes_and_envelopes(self) -> None:
        registry, result = unpacked("run")["registry"], raw("result", "result")
        base, chosen = unpacked("record")["base"], raw("ranking", "set digest accepted")
        _, view, *body = unpacked("envelope-4a")["body"]
        assert body[:3] == [base, chosen, result]
        for kind, name in (("Request", "4a"), ("Reply", "5")):
            full = f"{kind}({signing.TYPES[kind]})"
            digest = typed(full, 1, 1, view, base, chosen, result)
            assert digest == raw("signing", kind)
            envelope = unpacked(f"envelope-{name}")
            assert envelope["body"][5] == raw("signing", f"{kind} signature")
            assert signer(digest, envelope["body"][5]) == registry[envelope["client"]][0]
        place = keccak(self.seed + b"\1" + view.to_bytes(4))
        assert place == raw("signing", "primary's hash")
        primary = self.committee[int.from_bytes(place) % 3]
        assert unpacked("envelope-4a")["client"] == primary
        reply = raw("signing", "Reply signature")
        assert raw("signing", "Reply r") == reply[:32]
        parity = (reply[64] - 27) << 255
        assert raw("signing", "Reply vs") == words(int.from_bytes(reply[32:64]) | parity)
        commitment = unpacked("envelope-1")
        digest = typed(
            f"Commitment({signing.TYPES['Commitment']})",
            *(1, commitment["client"], commitment["body"][0]),
        )
        assert digest == raw("signing", "Commitment")
        assert signer(digest, commitment["body"][1]) == registry[commitment["client"]][0]
        stated = unpacked("envelope-6")
        environment, signature = stated["body"]
        full = f"Environment({signing.TYPES['Environment']})"
        digest = typed(full, 1, stated["client"], hashlib.sha256(environment).digest())
        assert signer(digest, signature) == registry[stated["client"]][0]
        attested = unpacked("envelope-7")
        auditor, run, verdict, environment, witness, signature = attested["body"]
        assert run == raw("run", "sha256")
        losses = struct.pack("<2f", 0.5, 0.25)
        assert witness == keccak(auditor + hashlib.sha256(losses).digest())
        found = verdict, hashlib.sha256(environment).digest(), witness
        full = f"Replay({signing.TYPES['Replay']})"
        digest = typed(full, run, 1, attested["client"], *found)
        assert signer(digest, signature) == auditor
        assert unpacked("envelope-3")["body"][2] == data("vector")
        assert body[5] == data("record")

    def test_head_and_next_seed(self) -> None:
        views, signers = (places(named("head")[key]) for key in ("views", "signers"))
        assert all(bits.bit_count() == 2 for bits in signers)
        incidents = hashlib.sha256(data("incidents")).digest()
        votes = keccak(words(*views, *signers, incidents))
        assert votes == raw("head", "votes digest")
        head, base = raw("run", "sha256"), unpacked("record")["base"]
        sets = raw("ranking", "set digest accepted") + raw("ranking", "set digest next committee")
        begin = head + (1).to_bytes(8)
        joined = begin + self.seed + base + sets + raw("result", "result") + votes
        assert keccak(joined) == raw("head", "head_1")
        assert keccak(self.seed + raw("result", "reveal") + bytes(32)) == raw("head", "seed_2")
        accused = unpacked("incidents")["incidents"][0][2]
        banned = keccak(begin + b"banned" + accused.to_bytes(4))
        assert banned == raw("head", "head_0 and a ban")


def test_batches_and_data_digest_follow_from_the_document_alone() -> None:
    values = named("training")
    client = int(next(label for label in values if label.startswith("job"))[-1])
    seed = bytes.fromhex(named("opening")["seed_1"])
    job = hashlib.sha256(seed + client.to_bytes(4)).digest()
    assert job.hex() == values[f"job of client {client}"]
    assert second_training.steps(job, 5, 2, 4) == json.loads(values["four steps"])
    assert second_training.epochs(job, 5, 2, 1) == json.loads(values["one epoch"])
    digest = second_training.samples_digest(b"\x07" * 32, [[0, 0.5], [1, -1]], [0, 1])
    assert digest.hex() == values["digest of samples"]


@given(st.binary(min_size=32, max_size=32), st.integers(1, 40), st.integers(1, 50))
def test_the_documents_batches_are_the_trainers(job: bytes, samples: int, size: int) -> None:
    steps = LocalTraining(learning_rate=1, batch_size=size, local_steps=3)
    epochs = LocalTraining(learning_rate=1, batch_size=size, local_epochs=2)
    ours = [[batch.tolist() for batch in batches(job, samples, each)] for each in (steps, epochs)]
    assert ours[0] == second_training.steps(job, samples, size, 3)
    assert ours[1] == second_training.epochs(job, samples, size, 2)


def test_the_attestation_opens_to_its_auditor_and_losses() -> None:
    auditor, run, verdict, environment, witness, signature = unpacked("envelope-7")["body"]
    assert witness == keccak(auditor + hashlib.sha256(struct.pack("<2f", 0.5, 0.25)).digest())
    assert run == hashlib.sha256(data("run")).digest()
    client, digest = unpacked("envelope-7")["client"], hashlib.sha256(environment).digest()
    signed = typed(f"Replay({signing.TYPES['Replay']})", run, 1, client, verdict, digest, witness)
    assert signer(signed, signature) == auditor


def numbers(name: str, key: str) -> list[float]:
    return [float(text) for text in named(name)[key].strip("[]").split(",")]


def unit(vector: list[float]) -> list[float]:
    length = math.fsum(number * number for number in vector) ** 0.5
    return [number / length for number in vector]


def dot(one: list[float], other: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def test_crowding_and_distances_can_be_computed_from_the_text_alone() -> None:
    updates = [numbers("crowding", f"update {k}") for k in range(9)]
    units, h = [unit(update) for update in updates], unit(numbers("crowding", "travel"))
    a = [dot(u, h) for u in units]
    b = min(3.0, 150 * max(0.0, statistics.median(a)))
    rho = [max(0.5, max(0.0, 1 - x * x) ** 0.5) for x in a]
    q = [
        sum(
            max(0.0, (dot(units[k], units[j]) - a[k] * a[j]) / (rho[k] * rho[j])) ** 2
            for j in range(9)
            if j != k
        )
        for k in range(9)
    ]
    m, ordered = statistics.median(q), sorted(q)
    lonely = [min(1.0, 1000 * m) * min(1.0, max(0.0, 2 - 3 * x / m)) for x in q]
    p = (9 - 1) / 2 + sum(lonely) / 2
    i = math.floor(p)
    base = max(0.001, ordered[i] + (p - i) * (ordered[i + 1] - ordered[i]))
    g = [max(1.0, x / (2.5 * base)) ** 4 for x in q]
    norms = [dot(update, update) ** 0.5 for update in updates]
    f = [max(1.0, norm / (2 * statistics.median(norms))) ** 2 for norm in norms]
    distances = []
    for k, u in enumerate(units):
        apart = [[x - y for x, y in zip(u, other, strict=True)] for other in (units[0], h)]
        mean = (dot(apart[0], apart[0]) + b * dot(apart[1], apart[1])) / (1 + b)
        distances.append(mean + (f[k] * g[k] - 1))
    for key, values in (("q", q), ("g", g), ("f", f), ("distances from member 0", distances)):
        assert numbers("crowding", key) == pytest.approx(values, rel=1e-6), key
    assert numbers("crowding", "b") == [b]
    assert numbers("crowding", "base") == pytest.approx([base], rel=1e-6)


def test_peers_distances_can_be_computed_from_the_text_alone() -> None:
    units = [unit(numbers("crowding", f"update {k}")) for k in range(9)]
    h = unit(numbers("crowding", "travel"))
    b = min(1.0, 5 * max(0.0, statistics.median(dot(u, h) for u in units)))
    distances = []
    for k, f, g in zip(range(9), numbers("crowding", "f"), numbers("crowding", "g"), strict=True):
        v = statistics.median(math.dist(units[k], units[j]) ** 2 for j in range(9) if j != k)
        distances.append((v + b * math.dist(units[k], h) ** 2) / (1 + b) + (f * g - 1))
    assert numbers("peers", "b") == [b]
    assert numbers("peers", "distances") == pytest.approx(distances, rel=1e-6)


def test_a_clipped_model_can_be_computed_from_the_text_alone() -> None:
    clients = [int(k) for k in numbers("clip", "accepted")]
    samples = [int(n) for n in numbers("clip", "samples")]
    updates = [numbers("crowding", f"update {k}") for k in clients]
    norms = [math.fsum(x * x for x in update) ** 0.5 for update in updates]
    middle = statistics.median(norms)
    factors = [1.0 if norm <= middle else middle / norm for norm in norms]
    for key, values in (("norms", norms), ("s", factors)):
        assert named("clip")[key].strip("[]").split(", ") == [value.hex() for value in values]
    model = []
    for column in zip(*updates, strict=True):
        total = 0.0
        for n, s, x in zip(samples, factors, column, strict=True):
            total = total + (n / sum(samples)) * s * x
        model.append(0.0 - 1.0 * total)
    assert struct.pack("<8f", *model).hex() == named("clip")["next model"]


def test_a_model_clipped_to_a_quantile_can_be_computed_from_the_text_alone() -> None:
    clients = [int(k) for k in numbers("clip", "accepted")]
    samples = [int(n) for n in numbers("clip", "samples")]
    updates = [numbers("crowding", f"update {k}") for k in range(9)]
    norms = [math.fsum(x * x for x in update) ** 0.5 for update in updates]
    t = sorted(norms)[math.floor(2 * (9 - 1) / 5)]
    factors = [1.0 if norms[k] <= t else t / norms[k] for k in clients]
    for key, values in (("norms", norms), ("s", factors)):
        assert named("quantile")[key].strip("[]").split(", ") == [value.hex() for value in values]
    model = []
    for column in zip(*(updates[k] for k in clients), strict=True):
        total = 0.0
        for n, s, x in zip(samples, factors, column, strict=True):
            total = total + (n / sum(samples)) * s * x
        model.append(0.0 - 1.0 * total)
    assert struct.pack("<8f", *model).hex() == named("quantile")["next model"]


def test_every_parameter_is_in_the_settings_with_its_range() -> None:
    text = section("Settings")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(field.name for field in fields(Parameters))
    for value in (parameters.MAX_CLIENTS, parameters.MAX_MEMBERS, parameters.MAX_TRAINERS):
        assert f"{value:,}" in text
    powers = (2**32 - 1, 2**28, 2**20)
    bounds = (parameters.MAX_ROUNDS, parameters.MAX_DIMENSION, parameters.MAX_VIEW_SECONDS)
    assert bounds == powers


@pytest.mark.parametrize(
    "names",
    [DISTANCES, REFERENCES, SCORINGS, THRESHOLDS, PAYLOAD_FORMS],
    ids=["distance", "reference", "scoring", "threshold", "payload"],
)
def test_every_rule_is_described(names: dict[str, object]) -> None:
    rules = TEXT.split("## 7 Rules")[1].split("## 8")[0] + section("Settings")
    assert all(f"`{name}`" in rules for name in names)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Run", "run"),
        ("Vector", "vector"),
        ("Record", "record"),
        ("Incidents", "incidents"),
        ("Envelope", "envelope-5"),
    ],
)
def test_every_field_of_every_document_is_described(title: str, name: str) -> None:
    described = set(re.findall(r"`(\w+)`", section(title)))
    assert set(unpacked(name)) - {"version"} <= described


def test_types_to_sign_functions_and_events_are_the_contracts() -> None:
    for name, text in signing.TYPES.items():
        assert f"\n{name}({text})\n" in TEXT
    contract = TEXT.split("## 10 The contract")[1].split("## 11")[0]
    for entry in ABI:
        if entry["type"] in {"function", "event"}:
            assert f"`{entry['name']}" in contract, entry["name"]
    constructor = next(entry for entry in ABI if entry["type"] == "constructor")
    listed = [
        name
        for row in re.findall(r"^\| (`.*?`) \|", section("Constructor"), re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert listed == [field["name"] for field in constructor["inputs"][0]["components"]]


def declared(field: dict[str, Any]) -> str:
    """Return type, name and mark of a field as the document writes them."""
    kind = field["type"]
    if kind.startswith("tuple"):
        kind = f"({', '.join(map(declared, field['components']))}){kind.removeprefix('tuple')}"
    return f"{kind} {field['name']}{'*' if field.get('indexed') else ''}"


def test_events_list_types_and_names_of_their_fields_in_order() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|$", section("Events"), re.MULTILINE))
    for entry in ABI:
        if entry["type"] == "event":
            assert rows[entry["name"]] == ", ".join(map(declared, entry["inputs"]))


def test_the_state_lists_types_and_names_in_order() -> None:
    (state,) = (entry["outputs"][0] for entry in ABI if entry.get("name") == "state")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", section("State"), re.MULTILINE)
    assert rows == [(field["name"], field["type"]) for field in state["components"]]


def test_the_step_that_an_altered_field_fails_is_the_audits() -> None:
    rows = re.findall(r"^\| (.*) \| ([\d; ]+) \|$", section("Which step fails"), re.MULTILINE)
    kinds = {kind.__name__: kind for kind in get_args(ledger_state.Event)}
    names = [text for text, _ in rows]
    first = next(place for place, text in enumerate(names) if "a field of a log" in text)
    last = next(place for place, text in enumerate(names) if "any other field" in text)
    assert rows[last][1] == "1; 3"
    said: dict[tuple[str, str], int] = {}
    for text, step in rows[first:last]:
        words = set(re.findall(r"`(\w+)`", text))
        for event in words & kinds.keys() or kinds.keys():
            said |= {(event, field): int(step) for field in words - kinds.keys()}
    for event, kind in kinds.items():
        other = 1 if event in {"LedgerDeployed", "ClientsRegistered", "LedgerOpened"} else 3
        for field in fields(kind):
            assert said.get((event, field.name), other) == step_of_field(kind, field.name)


def test_bounds_are_those_of_the_code() -> None:
    assert f"{sampling.MAX_DRAWS:,} draws" in TEXT
    assert (
        f"deeper than {canonical.MAX_NESTING}, more than {canonical.MAX_DOCUMENT_BYTES:,} bytes "
        f"(a vector: {vector.MAX_VECTOR_BYTES:,}), more than {canonical.MAX_CONTAINERS:,} maps\n"
        f"and lists, or more than {canonical.MAX_CONTAINERS:,} entries"
    ) in TEXT
    lists, entries = envelope.MAX_ENVELOPE_CONTAINERS, parameters.MAX_MEMBERS
    assert f"has more than {entries} entries, and it has at most {lists} maps and lists" in (
        section("Envelope").replace("\n", " ")
    )
    assert MAX_BLOB_BYTES == 2**30
    assert "longer than 2^30 bytes" in section("Blobs")
    assert f"views\nto {consensus.MAX_VIEWS - 1}:" in TEXT


def test_every_link_within_the_document_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= anchors
