"""Transactions of strangers: what they leave out must not make a run uncheckable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.chain.contract.codec import CommitCall, encode_call
from tests.audit.runs import Run

GAS = 2_000_000


def exchanged(data: bytes) -> bytes:
    """Return the two arrays of a commitment in the other order."""
    commitments, signatures = (int.from_bytes(data[at : at + 32]) for at in (36, 68))
    length = len(data) - 4 - signatures
    head = data[:36] + (commitments + length).to_bytes(32) + commitments.to_bytes(32)
    return head + data[4 + signatures :] + data[4 + commitments : 4 + signatures]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:-40],
        lambda data: data[:-64],
        exchanged,
        lambda data: exchanged(data)[:-1] + bytes(100),
    ],
    ids=["one byte", "a word and more", "a signature", "exchanged", "padded"],
)
def test_a_run_in_which_a_stranger_sent_data_in_another_layout_passes(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    run = Run.on_revm(tmp_path)
    client = min(run.participants.expected)
    signed = run.commitment(client, run.word(client))
    # The contract passes over the second entry, and never looks at its signature.
    data = change(encode_call(CommitCall(1, (signed, signed))))
    assert run.chain.send(run.ledger.address, data, GAS).logs
    run.play()
    run.passed()
