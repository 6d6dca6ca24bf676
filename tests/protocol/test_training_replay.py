"""Environments and witnesses of repeated training."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from ledger.protocol import canonical
from ledger.protocol.encoding import keccak256
from ledger.protocol.errors import EncodingError
from ledger.protocol.training_replay import (
    MAX_ENVIRONMENT_TEXT,
    TrainingEnvironment,
    decode_environment,
    encode_environment,
    replay_witness,
)
from ledger.protocol.types import Address

HERE = TrainingEnvironment("2.13.0+cpu", "plain", "x86_64", "avx2", "cpu", 1)


def test_an_environment_survives_its_encoding() -> None:
    assert decode_environment(encode_environment(HERE)) == HERE


@pytest.mark.parametrize(("threads", "text"), [(1, "1 thread"), (2, "2 threads")])
def test_an_environment_reads_as_one_line(threads: int, text: str) -> None:
    line = f"torch 2.13.0+cpu, plain path, x86_64 avx2, cpu, {text}"
    assert str(replace(HERE, threads=threads)) == line


@pytest.mark.parametrize("field", ["torch", "path", "processor", "isa", "device"])
@pytest.mark.parametrize(
    "text", ["", "a" * (MAX_ENVIRONMENT_TEXT + 1), "line\nbreak", "\x1b[31m", "ä"]
)
def test_a_text_that_a_terminal_must_not_show_is_refused(field: str, text: str) -> None:
    value = canonical.decode(encode_environment(HERE))
    with pytest.raises(EncodingError):
        decode_environment(canonical.encode(value | {field: text}))


@pytest.mark.parametrize(
    "change", [{"version": 1}, {"more": 1}, {"threads": True}, {"isa": b"avx2"}]
)
def test_another_document_is_no_environment(change: dict[str, object]) -> None:
    value = canonical.decode(encode_environment(HERE))
    with pytest.raises(EncodingError):
        decode_environment(canonical.encode(value | change))


def test_two_auditors_have_different_witnesses_of_the_same_losses() -> None:
    losses = bytes(range(8))
    first, second = Address(b"\x01" * 20), Address(b"\x02" * 20)
    assert replay_witness(first, losses) == keccak256(first + hashlib.sha256(losses).digest())
    assert replay_witness(first, losses) != replay_witness(second, losses)
