"""A finished round's bytes never change; what may still change says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from api.http.encoded_answer import CHANGING, IMMUTABLE
from api.settings import Settings
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from tests.api.conftest import (
    ROUNDS,
    deployments_path,
    make_run,
    read,
    refused,
    root_of,
    rounds_that_are,
    serving,
)

if TYPE_CHECKING:
    import httpx

PARTS = (
    *("", "/updates", "/scores", "/votes", "/committee", "/aggregation"),
    "/scores?include=vectors",
)


def paths(root: str) -> list[str]:
    return [f"{root}/rounds/{t}{part}" for t in range(1, ROUNDS + 1) for part in PARTS]


def test_finished_rounds_are_immutable_under_a_strong_tag(client: httpx.Client, root: str) -> None:
    tags = set()
    for path in paths(root):
        answer = client.get(path)
        assert answer.headers["cache-control"] == IMMUTABLE
        assert answer.headers["etag"].startswith('"')
        tags.add(answer.headers["etag"])
        again = client.get(path)
        assert (again.content, again.headers["etag"]) == (answer.content, answer.headers["etag"])
    with_vectors = ROUNDS - len(rounds_that_are(client, root, "abandoned"))
    assert len(tags) == ROUNDS * (len(PARTS) - 1) + with_vectors, "other bytes, other tags"


def test_what_the_client_has_is_not_sent_again(client: httpx.Client, root: str) -> None:
    for path in (f"{root}/rounds/1", f"{root}/rounds", root, "/v1/status", f"{root}/clients/1"):
        tag = client.get(path).headers["etag"]
        for known in (tag, f'"other", {tag}', f"W/{tag.removeprefix('W/')}", "*"):
            answer = client.get(path, headers={"If-None-Match": known})
            assert answer.status_code == 304
            assert answer.content == b""
            assert answer.headers["etag"] == tag
        for other in ('"other"', tag.strip('W/"'), ""):
            answer = client.get(path, headers={"If-None-Match": other})
            assert answer.status_code == 200


def test_a_changing_answer_has_a_weak_etag_and_is_revalidated(
    client: httpx.Client, root: str
) -> None:
    for path in (
        "/v1/status",
        "/v1/chains",
        root.rpartition("/")[0],
        root,
        f"{root}/rounds",
        f"{root}/clients",
    ):
        answer = client.get(path)
        assert answer.headers["cache-control"] == CHANGING
        assert answer.headers["etag"].startswith('W/"')


def test_head_is_get_without_the_body(client: httpx.Client, root: str) -> None:
    for path in ("/health", "/v1/status", root, f"{root}/rounds/1", f"{root}/rounds"):
        one, other = client.head(path), client.get(path)
        assert (one.status_code, one.content) == (200, b"")
        for name in ("etag", "cache-control", "content-length", "content-type"):
            assert one.headers.get(name) == other.headers.get(name), (path, name)
    assert client.head(f"{root}/rounds/999").status_code == 404


def test_a_long_answer_is_compressed_for_who_asks(client: httpx.Client, root: str) -> None:
    path = f"{root}/rounds/1?full=true"
    for _ in range(2):  # the second is from what is kept
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        short = client.get(path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
        assert "content-encoding" not in plain.headers
        assert short.headers["content-encoding"] == "gzip"
        assert int(short.headers["content-length"]) < len(plain.content) / 2
        assert short.content == plain.content
        assert short.headers["etag"] != plain.headers["etag"], "other bytes, another tag"
        assert short.headers["vary"] == "Accept-Encoding"
        for tag in (plain.headers["etag"], short.headers["etag"]):
            answer = client.get(path, headers={"If-None-Match": tag})
            assert (answer.status_code, answer.content) == (304, b"")
    for refusing in ("gzip;q=0", "gzip; q=0.0, br", "identity", "x" * 5_000):
        answer = client.get(path, headers={"Accept-Encoding": refusing})
        assert "content-encoding" not in answer.headers


def test_two_homes_share_an_address_and_no_path(tmp_path: Path) -> None:
    """What a browser keeps of one home for a year is never shown for another."""
    one, other = tmp_path / "one", tmp_path / "other"
    other.mkdir()
    EmbeddedChain.create(other / "chain.sqlite", chain_id=7).close()
    address = make_run(one, "first", ("protocol.rounds=1",))
    assert make_run(other, "first", ("protocol.rounds=1",)) == address
    with serving(Settings(home=one)) as client:
        path = f"{root_of(client, address)}/rounds/1"
        assert client.get(path).headers["cache-control"] == IMMUTABLE
    with serving(Settings(home=other)) as client:
        told = refused(client.get(path), 404, "chain-not-found")
        assert told["detail"].endswith(f"{deployments_path(client).split('/')[3]} is")
        assert client.get(f"{root_of(client, address)}/rounds/1").status_code == 200


def test_a_missing_record_is_told_and_its_answers_may_change(tmp_path: Path) -> None:
    home = tmp_path / "home"
    address = make_run(home, "first", ("protocol.rounds=1",))
    with serving(Settings(home=home)) as client:
        root = root_of(client, address)
        digest = read(client, f"{root}/rounds/1")["record"]["digest"][2:]
        blob = home / "blobs" / digest[:2] / digest
        data = blob.read_bytes()
        blob.unlink()
        assert client.get(f"{root}/rounds/1").headers["cache-control"] == IMMUTABLE, "it was whole"
    with serving(Settings(home=home)) as client:
        for part in ("", "/updates", "/scores", "/committee", "/aggregation"):
            answer = client.get(f"{root}/rounds/1{part}")
            assert answer.headers["cache-control"] == CHANGING
            assert answer.json()["record"] == {"digest": f"0x{digest}", "available": False}
        for entry in read(client, f"{root}/rounds/1/updates")["updates"]:
            assert entry["commitment"] is not None, "the chain has it"
            assert entry["payload"] is None, "only the record opens it"
        votes = client.get(f"{root}/rounds/1/votes")
        assert votes.headers["cache-control"] == IMMUTABLE, "the chain has them"
        assert len(votes.json()["certificates"]) == 2
        # Another blob under its name is none either.
        blob.write_bytes(data[:-1] + b"\0")
        assert not read(client, f"{root}/rounds/1/scores")["record"]["available"]
        blob.write_bytes(data)
        assert client.get(f"{root}/rounds/1/scores").headers["cache-control"] == IMMUTABLE
