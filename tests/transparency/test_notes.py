"""Notes, keys, policies and proofs: examples of the specification, and bad bytes."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace
from itertools import combinations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.transparency.notes import (
    MAX_NOTE_BYTES,
    Checkpoint,
    KeyUse,
    NoteError,
    NoteSignature,
    ProofError,
    SignedNote,
    SigningKey,
    VerifierKey,
    cosign,
    open_checkpoint,
    parse_checkpoint,
    parse_note,
    parse_vkey,
    sign_checkpoint,
)
from ledger.transparency.policy import (
    MAX_LINES_OF_A_KIND,
    MAX_POLICY_BYTES,
    MAX_PROOF_BYTES,
    WitnessPolicy,
    parse_policy,
    parse_proof,
    prove,
    verified_head,
)
from ledger.transparency.tree import EMPTY_ROOT, HeadEntry, parse_entry
from tests.faults import times
from tests.transparency.support import (
    DOMAIN,
    LOG,
    NOW,
    ORIGIN,
    OTHER_LOG,
    WITNESSES,
    checkpoint,
    entries,
    policy_text,
)

# The example of c2sp.org/signed-note, and that of c2sp.org/tlog-checkpoint.
EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE_NOTE = (
    "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONnc"
    "AlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()


def test_the_specifications_key_verifies_its_note() -> None:
    key, note = parse_vkey(EXAMPLE_KEY), parse_note(EXAMPLE_NOTE)
    assert (key.name, key.use, str(key)) == ("example.com/foo", KeyUse.NOTE, EXAMPLE_KEY)
    [(_, line)] = note.by([key])
    assert key.is_signed(note.text.encode(), line.signature)
    assert not key.is_signed(b"This is another message.\n", line.signature)
    assert note.encoded() == EXAMPLE_NOTE


def test_another_library_verifies_what_log_and_witness_sign() -> None:
    """The messages as c2sp.org has them, composed here, under `cryptography`'s Ed25519."""
    signed = checkpoint(5, by=WITNESSES[:1])
    log_line, witness_line = signed.note.signatures
    text = signed.checkpoint.text
    log = Ed25519PublicKey.from_public_bytes(LOG.verifier.public_key)
    log.verify(log_line.signature, text.encode())
    witness = Ed25519PublicKey.from_public_bytes(WITNESSES[0].verifier.public_key)
    (time,) = struct.unpack(">Q", witness_line.signature[:8])
    assert time == NOW
    witness.verify(witness_line.signature[8:], f"cosignature/v1\ntime {NOW}\n{text}".encode())
    for key, use in ((LOG, b"\x01"), (WITNESSES[0], b"\x04")):
        public = key.verifier.public_key
        assert key.verifier.key_id == sha256(key.name.encode() + b"\n" + use + public)[:4]


def test_keys_differ_by_name_and_use() -> None:
    secret = bytes([7] * 32)
    seeds = {
        SigningKey.derived(secret, use, name).seed for use in KeyUse for name in ("a", "b", "ab")
    }
    assert len(seeds) == 6
    assert SigningKey.derived(secret, KeyUse.NOTE, "a").seed in seeds
    assert secret.hex() not in repr(SigningKey.derived(secret, KeyUse.NOTE, "a"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name+530d903a",
        EXAMPLE_KEY[:-1],
        EXAMPLE_KEY.replace("530d903a", "530d903b"),
        EXAMPLE_KEY.replace("/foo", " foo"),
        EXAMPLE_KEY.replace("+Ae", "+BuE"),
        f"n+{sha256(b'n')[:4].hex()}+{base64.b64encode(bytes([6]) + bytes(32)).decode()}",
        f"n+00000000+{base64.b64encode(bytes([1]) + bytes([255]) * 32).decode()}",
        "n\x00+00000000+AQ==",
        f"{'n' * 300}+00000000+AQ==",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        parse_vkey(text)


@pytest.mark.parametrize("y", [1, 2**255 - 20, 0])
def test_a_key_of_small_order_is_refused(y: int) -> None:
    """Under such a key anybody signs anything; id and form are right."""
    key = VerifierKey("n", KeyUse.COSIGNATURE, y.to_bytes(32, "little"))
    with pytest.raises(NoteError, match="not an Ed25519 public key"):
        parse_vkey(str(key))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text\n\n",
        b"\n\n" + EXAMPLE_NOTE.split(b"\n\n")[1],
        EXAMPLE_NOTE + b"\n",
        EXAMPLE_NOTE.replace(b"message.", b"\xff"),
        EXAMPLE_NOTE.replace("— ".encode(), b"- "),
        EXAMPLE_NOTE.replace(b"example.com/foo", b"example.com+foo"),
        "text\n\n— name AAAA\n".encode(),
        "text\n\n— name AAAAAA==\n".encode(),
        b"text\n\n" + "— name AAAAAAAA\n".encode() * 301,
        b"x" * (MAX_NOTE_BYTES + 1),
    ],
)
def test_what_is_no_note_is_refused(data: bytes) -> None:
    with pytest.raises(NoteError):
        parse_note(data)


@given(st.binary(max_size=200))
def test_bytes_are_a_note_or_refused(data: bytes) -> None:
    try:
        note = parse_note(data)
    except NoteError:
        return
    assert note.encoded() == data


@pytest.mark.parametrize(
    "text",
    [
        "",
        "origin\n5\n",
        f"origin\n\n{base64.b64encode(bytes(32)).decode()}\n",
        f"\n5\n{base64.b64encode(bytes(32)).decode()}\n",
        f"origin\n05\n{base64.b64encode(bytes(32)).decode()}\n",
        f"origin\n{2**63}\n{base64.b64encode(bytes(32)).decode()}\n",
        f"origin\n5\n{base64.b64encode(bytes(31)).decode()}\n",
        f"origin\n5\n{bytes(32).hex()}\n",
        f"origin\n5\n{base64.b64encode(bytes(32)).decode()}\n\nextension\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        parse_checkpoint(text)


def test_a_checkpoint_of_another_log_or_key_is_refused() -> None:
    note = checkpoint(3).note.encoded()
    same_name = SigningKey(ORIGIN, KeyUse.NOTE, OTHER_LOG.seed)
    for keys in ([], [OTHER_LOG.verifier], [same_name.verifier]):
        with pytest.raises(NoteError):
            open_checkpoint(note, keys)
    other = sign_checkpoint(Checkpoint("example.org/another", 3, EMPTY_ROOT), OTHER_LOG)
    with pytest.raises(NoteError):
        open_checkpoint(other.note.encoded(), [LOG.verifier])
    assert open_checkpoint(note, [same_name.verifier, LOG.verifier]).checkpoint.size == 3


def test_a_false_signature_of_a_known_log_refuses_the_whole_note() -> None:
    """c2sp.org/signed-note: name and id of a known key, and bytes that are not its signature."""
    good = checkpoint(3)
    bad = NoteSignature(ORIGIN, LOG.verifier.key_id, bytes(64))
    note = SignedNote(good.note.text, (*good.note.signatures, bad)).encoded()
    with pytest.raises(NoteError):
        open_checkpoint(note, [LOG.verifier])


def test_cosignatures_of_strangers_are_ignored_and_repeats_count_once() -> None:
    stranger, known, other = WITNESSES
    signed = checkpoint(3, by=[stranger, known])
    later = cosign(signed.note.text, known, NOW + 5)
    twice = SignedNote(signed.note.text, (*signed.note.signatures, later, later))
    opened = open_checkpoint(twice.encoded(), [LOG.verifier])
    found = opened.cosignatures([known.verifier, other.verifier])
    assert [(each.key, each.time) for each in found] == [(known.verifier, NOW + 5)]


def test_a_checkpoint_has_room_for_every_witness_of_a_policy() -> None:
    note = checkpoint(3).note
    lines = [NoteSignature(f"w{n}", bytes(4), bytes(72)) for n in range(MAX_LINES_OF_A_KIND)]
    everybody = note.with_signatures(lines).encoded()
    assert len(parse_note(everybody).signatures) == MAX_LINES_OF_A_KIND + 1


@pytest.mark.parametrize("fault", ["another time", "another text", "no time", "short", "huge time"])
def test_a_false_cosignature_of_a_known_witness_is_refused(fault: str) -> None:
    witness, signed = WITNESSES[0], checkpoint(3)
    text = checkpoint(4).note.text if fault == "another text" else signed.note.text
    line = cosign(text, witness, 2**63 if fault == "huge time" else NOW)
    data = line.signature
    if fault == "another time":
        data = (NOW + 1).to_bytes(8) + data[8:]
    elif fault == "no time":
        data = bytes(8) + witness.sign(f"cosignature/v1\ntime 0\n{text}".encode())
    elif fault == "short":
        data = data[:-1]
    false = NoteSignature(line.name, line.key_id, data)
    note = signed.note.with_signatures([false]).encoded()
    opened = open_checkpoint(note, [LOG.verifier])
    with pytest.raises(NoteError):
        opened.cosignatures([witness.verifier])


def test_a_log_signature_is_no_cosignature_of_the_same_key() -> None:
    """The use is in the key id, and the text of a cosignature has a header of its own."""
    as_witness = SigningKey(ORIGIN, KeyUse.COSIGNATURE, LOG.seed)
    signed = checkpoint(3)
    assert signed.cosignatures([as_witness.verifier]) == []
    assert as_witness.verifier.key_id != LOG.verifier.key_id


KEYS = [str(key.verifier) for key in WITNESSES]
MORE = [
    str(SigningKey(f"y{number}", KeyUse.COSIGNATURE, bytes([40 + number] * 32)).verifier)
    for number in range(3)
]
W = "\n".join(f"witness W{number} {key}" for number, key in enumerate(KEYS))


def parsed(text: str) -> WitnessPolicy:
    return parse_policy(text.encode("utf-8", "surrogateescape"))


def test_the_specifications_two_groups_need_two_and_one() -> None:
    """The example of c2sp.org/tlog-policy, with keys."""
    lines = [f"log {LOG.verifier}", ""]
    lines += [f"witness X{number} {key}" for number, key in enumerate(KEYS, 1)]
    lines += ["group X-witnesses 2 X1 X2 X3", "  # a comment"]
    lines += [f"witness Y{number} {key}" for number, key in enumerate(MORE, 1)]
    lines += ["group\tY-witnesses any Y1  Y2 Y3", "group X-and-Y all X-witnesses Y-witnesses"]
    policy = parsed("\n".join([*lines, "quorum X-and-Y"]))
    for count in range(7):
        for names in combinations(policy.witnesses, count):
            xs = sum(name[0] == "X" for name in names)
            assert policy.is_met(names) == (xs >= 2 and count - xs >= 1), names


def test_a_quorum_may_be_one_witness_or_none() -> None:
    one = parsed(f"{W}\nquorum W1\n")
    assert one.is_met(["W1"])
    assert not one.is_met(["W0", "W2"])
    assert parsed("quorum none\n").is_met([])


def test_names_are_opaque_bytes() -> None:
    text = W.encode().replace(b"W0", b"\xff\xfe") + b"\ngroup g any \xff\xfe\nquorum g\n"
    assert parse_policy(text).is_met(["\udcff\udcfe"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        W,
        f"{W}\nquorum W3",
        f"{W}\nquorum W0\nquorum W0",
        f"{W}\nquorum",
        f"{W}\ngroup g 0 W0\nquorum g",
        f"{W}\ngroup g 3 W0 W1\nquorum g",
        f"{W}\ngroup g any\nquorum g",
        f"{W}\ngroup g any none\nquorum g",
        f"{W}\ngroup g any g\nquorum g",
        f"{W}\ngroup g any W0 W0\nquorum g",
        f"{W}\ngroup g any W0\ngroup h any W0\nquorum h",
        f"{W}\ngroup none any W1\nquorum none",
        f"witness none {KEYS[0]}\nquorum none",
        f"{W}\nwitness W0 {MORE[0]}\nquorum W0",
        f"witness W0 {LOG.verifier}\nquorum W0",
        f"log {KEYS[0]}\nquorum none",
        f"log {LOG.verifier}\nlog {LOG.verifier}\nquorum none",
        f"{W}\nquorum W0\nbecause x",
        f"{W}\nquorum W0\x7f",
        f"#{'x' * MAX_POLICY_BYTES}\n{W}\nquorum W0",
        "\n".join(f"group g{n} any W0" for n in range(3)),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parsed(text)
    assert "\n" not in str(error.value)


def test_hundreds_of_logs_are_refused() -> None:
    lines = [
        f"log {SigningKey(f'log{number}', KeyUse.NOTE, number.to_bytes(32)).verifier}"
        for number in range(257)
    ]
    with pytest.raises(ConfigurationError, match="256"):
        parsed("\n".join([*lines, "quorum none"]))
    assert (
        len(parsed("\n".join([*lines[:32], f"log {OTHER_LOG.verifier}", "quorum none"])).logs) == 33
    )


def test_names_of_strangers_and_repeats_do_not_count() -> None:
    policy = parsed(policy_text("2"))
    assert not policy.is_met(["W0", "W0", "stranger"])
    assert policy.is_met(["W0", "W2"])


POLICY = parse_policy(policy_text("2").encode())
PROOF = prove(entries(7), 2, checkpoint(7, by=WITNESSES[:2]).note.encoded())


def test_every_round_of_small_logs_is_proven() -> None:
    for size in range(1, times(9, 12)):
        note = checkpoint(size, by=WITNESSES).note.encoded()
        for index in range(size):
            proof = parse_proof(prove(entries(size), index, note).encoded())
            entry, witnesses = verified_head(proof, POLICY)
            assert (entry.round, entry.encoded()) == (index + 1, entries(size)[index])
            assert witnesses == ("W0", "W1", "W2")


@pytest.mark.parametrize(
    "false",
    [
        replace(PROOF, index=3),
        replace(PROOF, path=PROOF.path[:-1]),
        replace(PROOF, entry=entries(7)[3]),
        replace(PROOF, note=checkpoint(8, by=WITNESSES).note.encoded()),
        prove([b"else", *entries(7)[1:]], 0, PROOF.note),
        replace(PROOF, note=PROOF.note.replace(b"\n7\n", b"\n8\n")),
    ],
)
def test_a_false_proof_is_refused(false: object) -> None:
    with pytest.raises((NoteError, ProofError)):
        verified_head(false, POLICY)  # type: ignore[arg-type]


def test_a_log_that_holds_another_runs_head_is_refused() -> None:
    """The log's key signs whatever it wants; what it may hold are this run's heads in order."""
    from ledger.transparency.notes import Checkpoint, sign_checkpoint
    from ledger.transparency.tree import leaf_hash, root_of
    from tests.transparency.support import LOG, ORIGIN

    own = parse_entry(entries(1)[0])
    other = replace(own, domain=replace(DOMAIN, chain_id=1)).encoded()
    for logged in (other, replace(own, round=2).encoded(), b"no entry"):
        tree = Checkpoint(ORIGIN, 1, root_of([leaf_hash(logged)]))
        note = sign_checkpoint(tree, LOG).note.encoded()
        with pytest.raises((NoteError, ProofError)):
            verified_head(prove([logged], 0, note), POLICY)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PROOF.encoded().replace(b"@v1", b"@v2"),
        PROOF.encoded().replace(b"index 2", b"index 02"),
        PROOF.encoded().replace(b"extra ", b"extra !"),
        PROOF.encoded().replace(b"\nindex", b"\n\nindex"),
        PROOF.encoded().replace(b"=\n", b"= ", 2).replace(b"= index", b"=\nindex"),
        PROOF.encoded()
        .replace(b"=\n", "=\u2003\n".encode())
        .replace("=\u2003\nindex".encode(), b"=\nindex"),
        b"x" * (MAX_PROOF_BYTES + 1),
    ],
)
def test_what_is_no_proof_is_refused(data: bytes) -> None:
    with pytest.raises(NoteError):
        parse_proof(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_refused(data: bytes) -> None:
    try:
        entry = parse_entry(data)
    except NoteError:
        return
    assert isinstance(entry, HeadEntry)
    assert entry.encoded() == data
