"""Whatever somebody sends to a store: a refusal with a code, and nothing of it is kept."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ledger.protocol.encoding import sha256
from ledger.protocol.types import Address, ClientId
from ledger.storage.http import authorization_header
from tests.actors.support import PARAMETERS
from tests.api.conftest import refused
from tests.api.store.conftest import Contract, Store, contract_in, path_of, stored
from tests.disks import fill, small_disk
from tests.faults import times
from tests.patience import PATIENCE_SECONDS, wait_until

DATA = b"what a client wants to keep"


def sent(store: Store, data: bytes, header: str, path: str | None = None) -> httpx.Response:
    where = path_of(data) if path is None else path
    return store.http.put(where, content=data, headers={"Authorization": header})


def raw(store: Store, request: bytes) -> bytes:
    """Return what a store answers to bytes, until it closes the connection."""
    host, port = store.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        found = bytearray()
        while piece := connection.recv(65_536):
            found += piece
        return bytes(found)


def test_what_nobody_signed_is_not_kept(store: Store) -> None:
    here = f"{store.url}{path_of(DATA)}"
    for header in (
        "",
        "Bearer token",
        "CMFL",
        "CMFL 0.1.",
        f"CMFL 00.1.{'00' * 65} {here}",
        f"CMFL 0.1.{'AA' * 65} {here}",
        f"CMFL {2**32}.1.{'00' * 65} {here}",
        f"CMFL 0.{2**64}.{'00' * 65} {here}",
        f"CMFL -1.1.{'00' * 65} {here}",
        f"CMFL 0.1.{'00' * 65}",
        f"CMFL 0.1.{'00' * 65} {here} x",
        f"CMFL 0.1.{'00' * 65} http://{'h' * 4_000}",
    ):
        answer = sent(store, DATA, header)
        refused(answer, 401, "upload-unsigned")
        assert answer.headers["www-authenticate"] == f'CMFL realm="{store.url}"'
    assert store.files() == set()


def test_only_this_contracts_clients_sign_and_only_for_these_bytes(store: Store) -> None:
    upload = store.upload(DATA)
    outsider = authorization_header(replace(upload, client=ClientId(PARAMETERS.clients)), bytes(65))
    another_key = store.header(DATA, client=1).replace("CMFL 1.", "CMFL 0.")
    another_round = store.header(DATA).replace("CMFL 0.1.", "CMFL 0.2.")
    other_bytes = store.signed(replace(upload, digest=sha256(DATA[::-1])))
    other_size = store.signed(replace(upload, size=len(DATA) + 1))
    no_contract = replace(store.domain, contract=Address(bytes(20)))
    another_chain = replace(store.domain, chain_id=store.domain.chain_id + 1)
    for header in (
        outsider,
        another_key,
        another_round,
        other_bytes,
        other_size,
        store.signed(upload, no_contract),
        store.signed(upload, another_chain),
        authorization_header(upload, bytes(65)),
    ):
        refused(sent(store, DATA, header), 403, "upload-refused")
    assert store.files() == set()


def test_a_round_far_from_the_open_one_is_refused(store: Store) -> None:
    for near in (0, 1, 2):
        assert store.put(b"%d" % near, round_number=near).status_code == 201
    for far in (3, 2**64 - 1):
        refused(store.put(DATA, round_number=far), 409, "round-not-taken")


def test_banned_client_writes_nothing_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.store.receiver.FRESH_SECONDS", 0.05)
    with contract_in(tmp_path) as contract, stored(tmp_path / "s", contract) as store:
        assert contract.run.ban(ClientId(0))

        def refusal() -> httpx.Response | None:
            answer = store.put(DATA, round_number=2)
            return answer if answer.status_code == 403 else None

        # The store has asked the chain a moment ago.
        answer = wait_until(refusal)
        assert answer is not None
        assert refused(answer, 403, "upload-refused")["detail"] == "client 0 was banned in round 1"
        assert store.put(DATA + b"!", client=1, round_number=2).status_code == 201
        assert store.put(DATA + b"?", round_number=1).status_code == 201


def test_a_signature_shown_again_adds_nothing(store: Store) -> None:
    # It speaks of these bytes only, and they are there.
    header = store.header(DATA)
    assert sent(store, DATA, header).status_code == 201
    assert sent(store, DATA, header).status_code == 200
    refused(sent(store, DATA[::-1], header), 401, "upload-elsewhere")
    # Under the name of what is there nothing is read any more.
    assert sent(store, DATA[::-1], header, path_of(DATA)).status_code == 200
    assert store.http.get(path_of(DATA)).content == DATA
    assert store.files() == {sha256(DATA).hex()}


def test_other_bytes_than_were_announced_are_not_kept(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract, quota_blobs=1) as store:
        wrong = bytes(len(DATA))
        told = refused(sent(store, wrong, store.header(DATA), path_of(DATA)), 422, "body-wrong")
        assert sha256(DATA).hex() in told["detail"]
        assert store.files() == set()
        # Nor do they count.
        assert store.put(DATA).status_code == 201


def test_a_body_over_the_bound_is_not_read(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract, max_blob_bytes=1_000) as store:
        assert store.put(bytes(1_000)).status_code == 201
        refused(store.put(bytes(1_001)), 413, "body-too-large")
        said = raw(
            store,
            f"PUT {path_of(DATA)} HTTP/1.1\r\nHost:\r\nContent-Length: {10**30}\r\n\r\n".encode(),
        )
        assert b" 4" in said.split(b"\r\n")[0]
        assert len(store.files()) == 1


def test_a_body_of_unsaid_length_is_not_read(store: Store) -> None:
    def pieces() -> list[bytes]:
        return [DATA]

    answer = store.http.put(
        path_of(DATA), content=iter(pieces()), headers={"Authorization": store.header(DATA)}
    )
    refused(answer, 411, "length-needed")
    assert store.files() == set()


def test_who_drips_is_not_waited_for(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract, grace_seconds=0.2) as store:
        head = f"PUT {path_of(DATA)} HTTP/1.1\r\nHost:\r\nContent-Length: {len(DATA)}\r\n"
        head += f"Authorization: {store.header(DATA)}\r\n\r\n"
        said = raw(store, head.encode() + DATA[:3])
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b"3 of 27 bytes arrived" in said
        assert store.files() == set()
    # Nor does what came count, and a store that waits longer takes the whole from the same client.
    with stored(tmp_path / "store", contract) as store:
        assert store.put(DATA).status_code == 201


def test_who_leaves_in_the_middle_leaves_nothing(store: Store) -> None:
    head = f"PUT {path_of(DATA)} HTTP/1.1\r\nHost:\r\nContent-Length: {len(DATA)}\r\n"
    head += f"Authorization: {store.header(DATA)}\r\n\r\n"
    host, port = store.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + DATA[:3])
    wait_until(lambda: not store.files(), store.files)
    assert store.put(DATA).status_code == 201


def test_a_path_names_a_blob_or_nothing(store: Store) -> None:
    for path in (
        "/ab",
        "/ab/cd",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/ab/..%2f..%2fetc%2fpasswd",
        f"/AB/{'AB' * 32}",
        f"/cd/{'ab' * 32}",
        f"/ab/{'ab' * 32}/",
        f"/ab/{'ab' * 31}%00%00",
        f"//ab/{'ab' * 32}",
        "/store.lock",
        "/incoming/x",
    ):
        for method in (b"GET", b"PUT"):
            request = method + f" {path} HTTP/1.1\r\nHost:\r\nConnection: close\r\n".encode()
            said = raw(store, request + b"Content-Length: 0\r\n\r\n")
            assert said.split(b" ")[1] in {b"404", b"405"}, said
            assert b"root:" not in said


def test_ten_thousand_small_blobs_of_one_client_are_too_many(
    tmp_path: Path, contract: Contract
) -> None:
    most = times(20, 10_000)
    with stored(tmp_path / "store", contract, quota_blobs=most) as store:
        for number in range(most):
            assert store.put(b"%d" % number).status_code == 201
        refused(store.put(b"one more"), 429, "quota-exceeded")
        assert store.put(b"one more", client=1).status_code == 201
        assert store.put(b"and more", round_number=2).status_code == 201
        assert len(store.files()) == most + 2


def test_quota_counts_bytes_and_a_restart_forgets_none(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract, quota_bytes=1_000) as store:
        assert store.put(bytes(600)).status_code == 201
    with stored(tmp_path / "store", contract, quota_bytes=1_000) as store:
        refused(store.put(bytes(401)), 429, "quota-exceeded")
        assert store.put(bytes(400)).status_code == 201
        assert len(store.files()) == 2


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, contract: Contract) -> None:
    large = bytes(400_000)
    with small_disk(tmp_path / "disk", 4 << 20) as disk, stored(disk / "store", contract) as store:
        assert store.put(DATA).status_code == 201
        filling = fill(disk, 300_000)
        refused(store.put(large), 507, "disk-full")
        assert store.files() == {sha256(DATA).hex()}
        filling.unlink()
        assert store.put(large).status_code == 201


def test_messages_contain_no_path_and_no_signature(tmp_path: Path, contract: Contract) -> None:
    with stored(tmp_path / "store", contract) as store:
        path = store.folder / path_of(DATA)[1:]
        path.parent.mkdir()
        path.mkdir()
        for answer in (store.http.get(path_of(DATA)), store.put(DATA)):
            refused(answer, 503, "disk-fails")
            assert str(tmp_path) not in answer.text
        assert store.http.get("/health").text == "ok\n"
        assert "cmfl_requests_total" in store.http.get("/metrics").text
