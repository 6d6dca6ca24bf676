"""Whatever digest somebody holds, one request says as what, where and whose it stands."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from ledger.protocol.types import Digest
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import read, refused

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

NOWHERE = "5c" * 32


def places(client: httpx.Client, root: str, digest: str) -> list[tuple[Any, ...]]:
    told = read(client, f"{root}/digests/{digest}")
    assert told["digest"] == f"0x{digest.lower().removeprefix('0x')}"
    return [(one["kind"], one["round"], one["client"]) for one in told["items"]]


def test_the_sha256sum_of_a_file_leads_to_its_round(
    client: httpx.Client, root: str, home: Path
) -> None:
    (decided, *_) = read(client, f"{root}/rounds", status="decided", limit=1)["rounds"]
    number = decided["round"]
    told = read(client, f"{root}/rounds/{number}", full="true")
    for one in told["parts"]["updates"]:
        if one["payload"] is not None:
            data = FolderBlobs(home / "blobs").get(Digest(bytes.fromhex(one["payload"][2:])))
            own = {"payload": hashlib.sha256(data).hexdigest(), "commitment": one["commitment"]}
            for kind, digest in own.items():
                place, found = (kind, number, one["client"]), places(client, root, digest)
                # Numbers that are not finite are the same bytes in each round.
                assert place in found if one["outcome"] == "dropped_out" else found == [place]
    for kind in ("reveal", "head"):
        assert places(client, root, told[kind]) == [(kind, number, None)]
    assert ("model", number, None) in places(client, root, told["model"])
    assert places(client, root, told["record"]["digest"]) == [("record", number, None)]
    assert ("block", number, None) in places(client, root, told["ended"]["hash"])
    assert places(client, root, told["ended"]["transaction"]) == [("transaction", number, None)]


def test_what_belongs_to_the_deployment_has_no_round(client: httpx.Client, root: str) -> None:
    told = read(client, root)
    assert places(client, root, told["config"]) == [("configuration", None, None)]
    found = read(client, f"{root}/digests/{told['contract']['initial_model']}")
    first = found["items"][0]
    assert (first["kind"], first["round"]) == ("initial_model", None)
    assert client.get(first["links"]["blob"]).status_code == 200, "it is a file"
    assert first["links"]["deployment"] == root


def test_a_digest_is_written_as_people_write_it(client: httpx.Client, root: str) -> None:
    config = read(client, root)["config"]
    for written in (config, config[2:], config[2:].upper(), f"0x{config[2:].upper()}"):
        assert places(client, root, written) == [("configuration", None, None)]
    assert places(client, root, NOWHERE) == []


@pytest.mark.parametrize(
    "wrong",
    ["5c", "5c" * 33, "zz" * 32, f"0X{NOWHERE}", f"{NOWHERE[:-1]}%0a", "%00" * 64, "é" * 64],
)
def test_what_is_no_digest_is_refused(client: httpx.Client, root: str, wrong: str) -> None:
    refused(client.get(f"{root}/digests/{wrong}"), 422, "request-invalid")
