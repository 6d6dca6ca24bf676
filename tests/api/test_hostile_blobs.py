"""What anybody may have signed and published is told as it is, and breaks nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pydantic_core import to_json

from api.settings import Settings
from ledger.chain.contract.committee_ledger import CommitteeLedger
from ledger.history.serialise.parts import score_vector
from ledger.protocol.documents.vector import ScoreVector, encode_vector
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import MemoryBlobs
from tests.api.conftest import read, refused, rounds_that_are, serving

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

STRANGE = [float("nan"), float("inf"), -float("inf"), -1.0, -0.0, 5e-324, 1.7e308]


def clients(*numbers: int) -> tuple[ClientId, ...]:
    return tuple(map(ClientId, numbers))


def test_a_refused_vector_may_hold_what_is_no_distance() -> None:
    distances = np.array(STRANGE, dtype=np.float64)
    vector = ScoreVector(
        round=2**64 - 1,
        member=ClientId(2**32 - 1),
        base=Digest(b"\xff" * 32),
        trainers=clients(*range(len(STRANGE))),
        distances=distances,
        members=(),
        member_distances=np.array([], dtype=np.float64),
    )
    blobs = MemoryBlobs()
    told, found = score_vector(blobs, blobs.put(encode_vector(vector)))
    assert found
    assert told is not None
    assert told["round"] == str(2**64 - 1)
    assert [one["distance"] for one in told["trainers"]] == [
        None,
        None,
        None,
        -1.0,
        0.0,
        5e-324,
        1.7e308,
    ]
    bits = [int(one["distance_bits"]) for one in told["trainers"]]
    assert bits == distances.view("<u8").tolist(), "the bits are those that were published"
    assert to_json(told) == json.dumps(told, separators=(",", ":"), allow_nan=False).encode()


@pytest.mark.parametrize("data", [b"", b"\x80", b"[/red]" * 30, b"x" * 100_001])
def test_what_is_no_vector_is_null(data: bytes) -> None:
    blobs = MemoryBlobs()
    told, _ = score_vector(blobs, blobs.put(data))
    assert told is None
    assert score_vector(MemoryBlobs(), blobs.put(data)) == (None, False)


def test_a_decision_through_a_contract_account_shows_no_votes(
    client: httpx.Client, home: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = rounds_that_are(client, root, "decided")[0]
    assert read(client, f"{root}/rounds/{number}/votes")["certificates"]
    # The contract takes no such transaction (EIP-7702); a node can name one.
    monkeypatch.setattr(CommitteeLedger, "call_of", lambda *_: None)
    with serving(Settings(home=home)) as other:  # which keeps no answer from before
        told = refused(other.get(f"{root}/rounds/{number}/votes"), 404, "votes-not-found")
        assert "is not to the contract" in told["detail"]
        whole = read(other, f"{root}/rounds/{number}", full="true")
        assert (whole["status"], whole["parts"]["votes"]["certificates"]) == ("decided", None)
