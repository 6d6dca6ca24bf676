"""Blobs by their sha256: the bytes and nothing else, for whoever distrusts this service."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from pydantic_core import to_json

from api.http.answers import IMMUTABLE
from api.settings import Settings
from ledger.audit.proofs.bundle_verification import verify_bundle
from ledger.audit.proofs.container import open_bundle
from ledger.audit.proofs.documents import read_manifest, read_proof
from ledger.audit.proofs.verification import TrustedHead, verify_proof
from ledger.audit.report import AuditOutcome
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.history.answers_signed import score_vector
from ledger.protocol.documents.record import ScoreVector, encode_vector
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import MemoryBlobs, ObjectBlobs
from ledger.storage.http import static_server
from tests.api.conftest import CLIENTS, ROUNDS, read, refused, rounds_that_are, serving


@pytest.fixture(scope="module")
def model(client: httpx.Client, root: str) -> str:
    number = rounds_that_are(client, root, "decided")[0]
    return str(read(client, f"{root}/rounds/{number}")["model"]).removeprefix("0x")


@pytest.fixture
def copied(home: Path, tmp_path: Path) -> Iterator[tuple[Path, httpx.Client]]:
    copy = Path(shutil.copytree(home, tmp_path / "home"))
    with serving(Settings(home=copy, largest_blob_bytes=100_000)) as client:
        yield copy, client


def test_a_blob_is_its_bytes_and_a_file_to_keep(client: httpx.Client, model: str) -> None:
    for path in (f"/v1/blobs/{model}", f"/v1/blobs/{model[:2]}/{model}"):
        answer = client.get(path)
        assert hashlib.sha256(answer.content).hexdigest() == model
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == f'attachment; filename="{model}"'
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == IMMUTABLE
        assert "sandbox" in answer.headers["content-security-policy"]
        head = client.head(path)
        assert (head.content, head.headers["content-length"]) == (b"", str(len(answer.content)))
        again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_a_part_of_a_blob_is_sent(client: httpx.Client, model: str) -> None:
    path = f"/v1/blobs/{model}"
    whole = client.get(path)
    data, size = whole.content, len(whole.content)
    assert whole.headers["accept-ranges"] == "bytes"
    etag = whole.headers["etag"]
    parts = {
        "bytes=0-9": (0, 10),
        "bytes=5-": (5, size),
        "bytes=-7": (size - 7, size),
        f"bytes=-{size + 9}": (0, size),
        f"bytes={size - 1}-{size + 99}": (size - 1, size),
    }
    for asked, (first, end) in parts.items():
        for version in ({}, {"If-Range": etag}):
            answer = client.get(path, headers={"Range": asked, **version})
            assert (answer.status_code, answer.content) == (206, data[first:end]), asked
            assert answer.headers["content-range"] == f"bytes {first}-{end - 1}/{size}"
            assert answer.headers["content-length"] == str(end - first)
            assert answer.headers["etag"] == etag
            assert "sandbox" in answer.headers["content-security-policy"]


def test_a_range_behind_the_end_is_refused_with_the_size(client: httpx.Client, model: str) -> None:
    path = f"/v1/blobs/{model}"
    size = len(client.get(path).content)
    for asked in (f"bytes={size}-", f"bytes={size + 4}-{size + 9}", "bytes=-0"):
        answer = client.get(path, headers={"Range": asked})
        refused(answer, 416, "range-unsatisfiable")
        assert answer.headers["content-range"] == f"bytes */{size}"


def test_an_auditor_reads_them_like_any_folder_of_blobs(client: httpx.Client, model: str) -> None:
    far = ObjectBlobs(static_server(f"{client.base_url}/v1/blobs"))
    digest = Digest(bytes.fromhex(model))
    assert far.has(digest)
    assert hashlib.sha256(far.get(digest)).digest() == digest
    assert not far.has(Digest(bytes(32)))


def test_what_is_missing_or_no_digest_is_refused(client: httpx.Client, model: str) -> None:
    refused(client.get(f"/v1/blobs/{'0' * 64}"), 404, "blob-not-found")
    refused(client.get(f"/v1/blobs/ff/{'0' * 64}"), 404, "blob-not-found")
    for text in (model[:-1], f"{model}0", model.upper(), f"0x{model}"[:64], "%2e%2e"):
        if text != model:
            refused(client.get(f"/v1/blobs/{text}"), 422, "request-invalid")
    assert client.get("/v1/blobs/../../../etc/passwd").status_code == 404


def test_a_damaged_blob_is_never_sent(copied: tuple[Path, httpx.Client], model: str) -> None:
    home, client = copied
    file = home / "blobs" / model[:2] / model
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    told = refused(client.get(f"/v1/blobs/{model}"), 503, "blob-damaged")
    assert told["detail"] == f"blob {model} is damaged: its bytes have another sha256"
    file.write_bytes(data)
    assert client.get(f"/v1/blobs/{model}").content == data


def test_proofs_and_bundles_name_a_lost_blob(
    copied: tuple[Path, httpx.Client], root: str, model: str
) -> None:
    home, client = copied
    number = rounds_that_are(client, root, "decided")[0]
    config = str(read(client, root)["config"]).removeprefix("0x")
    cases = ((model, ("bundle",)), (config, ("bundle", "proof/0")))
    for name, parts in cases:
        file = home / "blobs" / name[:2] / name
        file.write_bytes(b"other")
        for part in parts:
            told = refused(client.get(f"{root}/rounds/{number}/{part}"), 503, "blob-damaged")
            assert name in told["detail"]
        file.unlink()
        for part in parts:
            refused(client.get(f"{root}/rounds/{number}/{part}"), 404, "blob-not-found")


def test_blob_over_limit_is_refused(copied: tuple[Path, httpx.Client], tmp_path: Path) -> None:
    home, client = copied
    large = bytes(100_001)
    name = hashlib.sha256(large).hexdigest()
    file = home / "blobs" / name[:2] / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(large)
    told = refused(client.get(f"/v1/blobs/{name}"), 503, "blob-damaged")
    assert "larger than the 100000 bytes" in told["detail"]
    file.unlink()
    file.mkdir()
    told = refused(client.get(f"/v1/blobs/{name}"), 503, "blob-damaged")
    assert str(tmp_path) not in told["detail"]


# Proofs and bundles from the service hold on the caller's side, which trusts a head alone.


@pytest.fixture(scope="module")
def kept(client: httpx.Client, root: str) -> TrustedHead:
    """Return the run's head, which the caller has from elsewhere."""
    return TrustedHead(Digest(bytes.fromhex(read(client, root)["state"]["head"][2:])))


def test_head_proves_every_participation(
    client: httpx.Client, root: str, kept: TrustedHead
) -> None:
    number = rounds_that_are(client, root, "decided")[0]
    accepted = {
        entry["client"] for entry in read(client, f"{root}/rounds/{number}/aggregation")["accepted"]
    }
    for who in range(CLIENTS):
        path = f"{root}/rounds/{number}/proof/{who}"
        answer = client.get(path, params={"whole": "true"})
        assert answer.status_code == 200
        proof = read_proof(answer.content)
        result = verify_proof(proof, number, ClientId(who), kept)
        assert result.outcome is AuditOutcome.PASSED, [s for s in result.steps if not s.is_ok]
        told = json.loads(answer.content)["statement"]
        assert (told["verdict"] == "used") == (who in accepted), told


def test_bundle_holds_its_round(
    client: httpx.Client, root: str, kept: TrustedHead, tmp_path: Path
) -> None:
    number = rounds_that_are(client, root, "decided")[1]
    answer = client.get(f"{root}/rounds/{number}/bundle", params={"whole": "true"})
    assert answer.headers["content-type"] == "application/x-tar"
    assert f"round-{number}.bundle.tar" in answer.headers["content-disposition"]
    file = tmp_path / "round.bundle"
    file.write_bytes(answer.content)
    with open_bundle(file) as parts:
        result = verify_bundle(read_manifest(parts.manifest, parts), parts, kept)
    assert result.outcome is AuditOutcome.PASSED


def test_what_is_not_there_is_not_proven(client: httpx.Client, root: str) -> None:
    refused(client.get(f"{root}/rounds/{ROUNDS + 1}/proof/0"), 404, "round-not-found")
    refused(client.get(f"{root}/rounds/1/proof/{CLIENTS}"), 404, "client-not-found")
    refused(client.get(f"{root}/rounds/{ROUNDS + 1}/bundle"), 404, "round-not-found")
    refused(client.get(f"{root}/rounds/1/proof/x"), 422, "request-invalid")


# What anybody may have signed and published is told as it is, and breaks nothing.


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
