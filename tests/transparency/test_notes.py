"""Notes, keys and cosignatures: the specification's examples, another library, and bad bytes."""

from __future__ import annotations

import base64
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import sha256
from ledger.transparency.checkpoints import (
    Checkpoint,
    cosign,
    open_checkpoint,
    parse_checkpoint,
    sign_checkpoint,
)
from ledger.transparency.errors import NoteError
from ledger.transparency.keys import KeyUse, SigningKey, VerifierKey, parse_vkey
from ledger.transparency.merkle import EMPTY_ROOT
from ledger.transparency.notes import MAX_NOTE_BYTES, NoteSignature, SignedNote, parse_note
from ledger.transparency.policy import MAX_LINES_OF_A_KIND
from tests.transparency.support import LOG, NOW, ORIGIN, OTHER_LOG, WITNESSES, checkpoint

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
    with pytest.raises(NoteError, match="no Ed25519 public key"):
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
