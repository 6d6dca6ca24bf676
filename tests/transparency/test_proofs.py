"""Proofs of logged heads: every round of small logs, and each way to lie about one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.transparency.entries import HeadEntry, parse_entry
from ledger.transparency.errors import NoteError, ProofError
from ledger.transparency.policy import parse_policy
from ledger.transparency.proofs import MAX_PROOF_BYTES, parse_proof, prove, verified_head
from tests.transparency.support import DOMAIN, WITNESSES, checkpoint, entries, policy_text

POLICY = parse_policy(policy_text("2").encode())
PROOF = prove(entries(7), 2, checkpoint(7, by=WITNESSES[:2]).note.encoded())


def test_every_round_of_small_logs_is_proven() -> None:
    for size in range(1, 12):
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
    from ledger.transparency.checkpoints import Checkpoint, sign_checkpoint
    from ledger.transparency.merkle import leaf_hash, root_of
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
