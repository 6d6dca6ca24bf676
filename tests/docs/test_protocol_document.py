"""The protocol's pages match the code, and suffice to repeat its bytes without the code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import msgpack
import pytest
from eth_abi.abi import encode as abi_encode
from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey, Signature
from hypothesis import given
from hypothesis import strategies as st

from clients.training.plain_trainer import batches
from clients.training.port import LocalTraining
from ledger.audit.checks.chain import step_of_field
from ledger.audit.proofs.documents import BUNDLE, PROOF
from ledger.audit.proofs.recorded import make_bundle, make_proof
from ledger.protocol import canonical, inputs, ledger_state, parameters, signing
from ledger.protocol.documents import envelope, record
from ledger.protocol.documents.envelope import EnvelopeKind, decode_envelope
from ledger.protocol.documents.record import decode_incidents, decode_record, decode_vector
from ledger.protocol.documents.run import decode_run
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import PAYLOAD_FORMS
from ledger.protocol.types import ClientId
from ledger.storage.blobs import MAX_BLOB_BYTES
from tests.audit.honest import honest_run
from tests.audit.runs import CLIENTS, Run
from tests.docs import second_rules, second_training
from tests.docs.worked_example import DOCUMENT, blocks, example, rewritten, shown

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference" / "protocol"
PAGES = {page.stem: page.read_text("utf-8") for page in sorted(FOLDER.glob("*.md"))}
TEXT = "\n".join(text for name, text in PAGES.items() if name != "proofs")
EXAMPLE = DOCUMENT.read_text("utf-8")
BLOCKS = shown(EXAMPLE)
COMMITTED = ROOT / "tests" / "vectors" / "protocol-v3.json"
VECTORS = Path(os.environ.get("CMFL_VECTORS", COMMITTED))
MOST_LINES = 300
ABI: list[dict[str, Any]] = json.loads(
    (resources.files("contracts") / "artifacts" / "committee_ledger.json").read_text()
)["abi"]
"""Remove with protocol 2."""


def section(title: str) -> str:
    """Return the text under a heading, up to the next of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
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
    assert rewritten(EXAMPLE) == EXAMPLE


def test_a_changed_block_is_noticed_and_mended() -> None:
    spoiled = EXAMPLE.replace(BLOCKS["example-head"].splitlines()[0], "views  [9, 9]")
    assert shown(spoiled)["example-head"] != BLOCKS["example-head"]
    assert rewritten(spoiled) == EXAMPLE


def test_every_page_is_short() -> None:
    written = PAGES.items() - {("example", EXAMPLE)}
    assert [name for name, text in written if len(text.splitlines()) > MOST_LINES] == []


def test_the_documents_of_the_example_can_be_read() -> None:
    run = decode_run(data("run"))
    record = decode_record(data("record"))
    assert len(run.registry) == run.parameters.clients == 12
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


def numbers_of(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def bytes_of(numbers: tuple[float, ...]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def update(client: int) -> tuple[float, ...]:
    return numbers_of(raw("payloads", f"payload {client}"))


def drawn_of(candidates: list[int], members: int, seed: bytes) -> list[int]:
    """Return the next committee by rules.md, "Election"."""
    elected: list[int] = []
    for i, candidate in enumerate(candidates):
        needed, left = members - len(elected), len(candidates) - i
        word = int.from_bytes(keccak(seed + b"elected" + i.to_bytes(4)))
        if needed == left or word % left < needed:
            elected.append(candidate)
    return elected


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
        name, version = keccak(b"CMFL Ledger"), keccak(str(unpacked("run")["version"]).encode())
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
            client = int.from_bytes(keccak(self.seed + draw.to_bytes(4))) % 12
            drawn += [] if client in drawn else [client]
            draw += 1
        assert drawn == self.committee
        stream = hashlib.shake_256(self.seed + b"sample").digest(8 * 12)
        outside = [client for client in range(12) if client not in drawn]
        keys = {client: stream[8 * client : 8 * client + 8] for client in outside}
        assert sorted(sorted(outside, key=lambda c: (keys[c], c))[:7]) == self.trainers

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

    def distances(self) -> dict[int, float]:
        """Return the distance of every usable update; round 1 has no travel."""
        usable = {client: update(client) for client, _ in unpacked("record")["updates"]}
        return second_rules.peers(usable, None).distances

    def ranked(self) -> list[tuple[float, int]]:
        distances = self.distances()
        return sorted((distances[k], k) for k in self.trainers if k in distances)

    def test_the_published_vector_is_true(self) -> None:
        vector, distances = unpacked("vector"), self.distances()
        for clients, values in (("trainers", "distances"), ("members", "member_distances")):
            listed = struct.unpack(f">{len(vector[clients]) // 4}I", vector[clients])
            published = struct.unpack(f"<{len(listed)}d", vector[values])
            assert list(published) == [distances[client] for client in listed]

    def test_ranking_sets_and_model(self) -> None:
        ranked, values = self.ranked(), named("ranking")
        found = second_rules.ranking_of({k: distance for distance, k in ranked})
        shown_words = [value for key, value in values.items() if "word" in key]
        assert [f"{word:064x}" for word in found] == shown_words
        accepted = second_rules.accepted_of(found, 1)
        assert accepted == places(values["accepted"]) == places(values["candidates"])
        assert len(accepted) > 3
        assert clients_digest(accepted).hex() == values["set digest accepted"]
        assert clients_digest(accepted).hex() == values["set digest candidates"]
        usable = {client: update(client) for client, _ in unpacked("record")["updates"]}
        first = numbers_of(raw("payloads", "first model"))
        model = second_rules.next_model(first, accepted, usable)
        assert bytes_of(model).hex() == values["next model"]

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

        leaves = sorted(value for key, value in hashes.items() if "update" in key)
        nodes = [b""] * (len(leaves) - 1) + leaves[::-1]
        for i in range(len(leaves) - 2, -1, -1):
            nodes[i] = pair(nodes[2 * i + 1], nodes[2 * i + 2])
        assert nodes[0] == raw("result", "updates root")
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
        seed = raw("head", "seed_2")
        assert keccak(self.seed + raw("result", "reveal") + bytes(32)) == seed
        elected = drawn_of(places(named("ranking")["candidates"]), 3, seed)
        assert elected == places(named("head")["next committee"])
        sets = raw("ranking", "set digest accepted") + clients_digest(elected)
        begin = head + (1).to_bytes(8)
        joined = begin + self.seed + base + sets + raw("result", "result") + votes
        assert keccak(joined) == raw("head", "head_1")
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


def test_the_rules_with_a_travel_can_be_computed_from_the_text_alone() -> None:
    updates = {k: tuple(numbers("peers", f"update {k}")) for k in range(9)}
    still = (0.0,) * 8
    h = second_rules.travel_of(tuple(numbers("peers", "travel")), still)
    found = second_rules.peers(updates, h)
    columns = {"q": found.q, "c": found.c, "f": found.f, "distances": found.distances}
    for key, values in columns.items():
        assert numbers("peers", key) == pytest.approx(list(values.values()), rel=1e-6), key
    assert numbers("peers", "b") == [found.b]
    accepted = places(named("peers")["accepted"])
    model = second_rules.next_model(still, accepted, updates)
    assert bytes_of(model).hex() == named("peers")["next model"]


def cases_of_strategy_3() -> list[dict[str, Any]]:
    if not VECTORS.exists():
        return []
    cases: list[dict[str, Any]] = json.loads(VECTORS.read_bytes()).get("strategy_3", [])
    return cases


@pytest.mark.parametrize("case", cases_of_strategy_3(), ids=lambda case: case["kind"])
def test_the_text_of_strategy_3_leads_to_the_vectors(case: dict[str, Any]) -> None:
    def read(text: str) -> tuple[float, ...]:
        return numbers_of(bytes.fromhex(text[2:]))

    def exact(values: dict[str, str]) -> dict[int, float]:
        return {int(k): float.fromhex(value) for k, value in values.items()}

    def near(values: dict[int, float]) -> Any:
        return pytest.approx(values, rel=1e-9, abs=1e-9)

    updates = {int(k): read(text) for k, text in case["updates"].items()}
    w_t = read(case["model_t"])
    w_o = case["model_s"]
    found = second_rules.peers(updates, w_o and second_rules.travel_of(read(w_o), w_t))
    assert found.b == pytest.approx(float.fromhex(case["b"]), abs=1e-9)
    assert found.base == pytest.approx(float.fromhex(case["base"]), rel=1e-9)
    directed = found.q.keys()
    assert found.q == near({k: q for k, q in exact(case["crowding"]).items() if k in directed})
    assert found.c == near({k: c for k, c in exact(case["c"]).items() if k in directed})
    assert found.f == near(exact(case["f"]))
    published = {k: row for k, row in case["expected_distances"].items() if row}
    for k, row in published.items():
        margin = 1e-9 * found.f[int(k)] * found.c.get(int(k), 1.0) ** 5
        for distance in map(float.fromhex, row):
            assert abs(distance - found.distances[int(k)]) <= 1e-9 * distance + margin
    means = {int(k): sum(map(float.fromhex, row)) / len(row) for k, row in published.items()}
    words = second_rules.ranking_of(means)
    assert [word & 0xFFFFFFFF for word in words] == case["expected_ranking"]
    assert (
        second_rules.accepted_of(words, len(case["expected_accepted"]))
        == (case["expected_accepted"])
    )
    seed, members = bytes.fromhex(case["next_seed"][2:]), len(case["members"])
    committee = drawn_of(case["expected_candidates"], members, seed)
    assert committee == case["expected_committee"]
    assert second_rules.bound_of(updates.values()).hex() == case["expected_bound"]
    model = second_rules.next_model(w_t, case["expected_accepted"], updates)
    if case["expected_model"] is not None:
        assert f"0x{bytes_of(model).hex()}" == case["expected_model"]


def test_every_parameter_is_in_the_settings_with_its_range() -> None:
    text = PAGES["settings"]
    listed = re.findall(r"^\| `(\w+)` \|", section("Parameters"), re.MULTILINE)
    assert sorted(listed) == sorted(field.name for field in fields(Parameters))
    for value in (parameters.MAX_CLIENTS, parameters.MAX_MEMBERS, parameters.MAX_TRAINERS):
        assert f"{value:,}" in text
    powers = (2**32 - 1, 2**28, 2**20)
    bounds = (parameters.MAX_ROUNDS, parameters.MAX_DIMENSION, parameters.MAX_VIEW_SECONDS)
    assert bounds == powers


def test_every_payload_form_is_described() -> None:
    rules = PAGES["encoding"] + PAGES["settings"]
    assert all(f"`{name}`" in rules for name in PAYLOAD_FORMS)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Run", "run"),
        ("Vector", "vector"),
        ("Record document", "record"),
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
    for entry in ABI:
        if entry["type"] in {"function", "event"}:
            assert f"`{entry['name']}" in PAGES["contract"], entry["name"]
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
    assert f"{inputs.MAX_DRAWS:,} draws" in TEXT
    assert (
        f"deeper than {canonical.MAX_NESTING}, more than {canonical.MAX_DOCUMENT_BYTES:,} bytes "
        f"(a vector: {record.MAX_VECTOR_BYTES:,}), more than {canonical.MAX_CONTAINERS:,} maps "
        f"and lists, or more than {canonical.MAX_CONTAINERS:,} entries"
    ) in TEXT.replace("\n", " ")
    lists, entries = envelope.MAX_ENVELOPE_CONTAINERS, parameters.MAX_MEMBERS
    assert f"has more than {entries} entries, and it has at most {lists} maps and lists" in (
        section("Envelope").replace("\n", " ")
    )
    assert MAX_BLOB_BYTES == 2**30
    assert "longer than 2^30 bytes" in section("Blobs")
    assert f"views to {parameters.MAX_VIEWS - 1}:" in TEXT.replace("\n", " ")


def keys(document: Any) -> Iterator[str]:
    """Yield the keys of the objects in a JSON document."""
    if isinstance(document, dict):
        yield from document
        document = list(document.values())
    for each in document if isinstance(document, list) else ():
        yield from keys(each)


def test_every_field_of_proofs_and_bundles_is_described(tmp_path: Path) -> None:
    run = honest_run(tmp_path, Run.on_revm)
    written = [BUNDLE.write(make_bundle(run.ledger, run.blobs, 2, whole=True))]
    proofs = (make_proof(run.ledger, run.blobs, 2, ClientId(i)) for i in range(CLIENTS))
    written += map(PROOF.write, proofs)
    found = set(keys(written))
    assert {"links", "accepted", "log_index", "share", "edge", "votes"} < found
    assert found - set(re.findall(r"`(\w+)`", PAGES["proofs"])) == set()
