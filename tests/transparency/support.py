"""Keys, entries and checkpoints of small logs. PUBLIC TEST KEYS, worth nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.protocol.types import Address, Digest, Domain
from ledger.transparency.notes import (
    Checkpoint,
    KeyUse,
    SignedCheckpoint,
    SigningKey,
    cosign,
    sign_checkpoint,
)
from ledger.transparency.tree import HeadEntry, leaf_hash, origin_of, root_of

NOW = 1_800_000_000
DOMAIN = Domain(31337, Address(bytes(range(20))), Digest(bytes([5] * 32)))
ORIGIN = origin_of("example.org/cmfl", DOMAIN)
LOG = SigningKey(ORIGIN, KeyUse.NOTE, bytes([1] * 32))
OTHER_LOG = SigningKey("example.org/another", KeyUse.NOTE, bytes([2] * 32))
WITNESSES = [
    SigningKey(f"w{number}.example", KeyUse.COSIGNATURE, bytes([10 + number] * 32))
    for number in range(3)
]


def entries(count: int, *, fork: int | None = None) -> list[bytes]:
    """Return the entries of a run's first rounds; from round `fork` on they are another run's."""
    return [
        HeadEntry(
            DOMAIN, t, Digest(bytes([t % 251, fork is not None and t >= fork]) + bytes(30))
        ).encoded()
        for t in range(1, count + 1)
    ]


def leaves(count: int, *, fork: int | None = None) -> list[Digest]:
    return [leaf_hash(entry) for entry in entries(count, fork=fork)]


def checkpoint(
    count: int, *, fork: int | None = None, by: Sequence[SigningKey] = (), time: int = NOW
) -> SignedCheckpoint:
    """Return the log's checkpoint of so many entries, cosigned by some witnesses."""
    from dataclasses import replace

    signed = sign_checkpoint(Checkpoint(ORIGIN, count, root_of(leaves(count, fork=fork))), LOG)
    lines = [cosign(signed.note.text, witness, time) for witness in by]
    return replace(signed, note=signed.note.with_signatures(lines))


def policy_text(quorum: str = "2", urls: Sequence[str] = (), log_url: str = "") -> str:
    """Return a policy of the log and the three witnesses."""
    places = [*urls, "", "", ""]
    lines = [f"log {LOG.verifier} {log_url}"]
    lines += [
        f"witness W{number} {key.verifier} {places[number]}" for number, key in enumerate(WITNESSES)
    ]
    return "\n".join([*lines, f"group enough {quorum} W0 W1 W2", "quorum enough", ""])
