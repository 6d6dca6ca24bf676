"""Attestations at a store: of ended rounds, each by its own auditor, within its quota."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.store.app import Retention
from api.store.receiver import Charges, charges_file
from ledger.history.training import attestations_of_round
from ledger.protocol.documents.envelope import (
    Attestation,
    Envelope,
    PublishedPayload,
    encode_envelope,
)
from ledger.protocol.encoding import sha256
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import ClientId, Digest, Upload
from ledger.storage.blobs import FolderBlobs
from ledger.storage.http import AUDITOR, authorization_header
from ledger.storage.mailbox import remove_mail
from ledger.storage.opening import mailbox_at
from tests.actors.support import PARAMETERS, signers
from tests.api.conftest import refused
from tests.api.store.conftest import Contract, Store, contract_in, path_of, stored
from tests.api.store.test_mail import board_of

ENDED = 12  # more than a store lists of other mail
NAMED = KeySigner(bytes([7] * 32))
STRANGER = KeySigner(bytes([9] * 32))
ENVIRONMENT = TrainingEnvironment("2.13.0", "plain", "x86_64", "avx2", "cpu", 1)


@dataclass(frozen=True)
class Board:
    """A store whose contract has ended rounds, and the attestations that it is sent."""

    store: Store
    run: Digest

    def attestation(
        self, signer: KeySigner, client: int = 0, round_number: int = 1, **changes: Any
    ) -> Envelope:
        """Return a signed attestation, with something changed before or, named, after it."""
        after = {name: changes.pop(name) for name in ("signature", "auditor") if name in changes}
        body = Attestation(
            signer.address, self.run, ReplayVerdict.SAME, ENVIRONMENT, Digest(bytes(32)), b""
        )
        body = replace(body, **changes)
        statement = body.statement(round_number, ClientId(client))
        body = replace(body, signature=sign(signer, self.store.domain, statement))
        return Envelope(self.store.domain, round_number, ClientId(client), replace(body, **after))

    def send(self, envelope: Envelope, signer: KeySigner, **changes: Any) -> httpx.Response:
        """Return the answer to an envelope that somebody sends."""
        data = encode_envelope(envelope)
        path = f"{board_of(envelope)}/{sha256(data).hex()}"
        index = changes.pop("index", AUDITOR)
        number = changes.pop("round_number", envelope.round)
        upload = Upload(number, index, f"{self.store.url}{path}", sha256(data), len(data))
        header = authorization_header(upload, sign(signer, self.store.domain, upload))
        return self.store.http.put(path, content=data, headers={"Authorization": header})

    def listed(self, round_number: int = 1) -> int:
        mailbox = mailbox_at(self.store.url)
        return len(attestations_of_round(mailbox, self.store.domain, self.run, round_number))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contract]:
    """A contract with rounds that ended long ago."""
    folder = tmp_path_factory.mktemp("ended")
    with contract_in(folder, rounds=20, commit_blocks=1, deadline_blocks=3) as contract:
        for _ in range(ENDED):
            assert contract.run.driver.abandon(contract.run.chain_view())
        yield contract


@pytest.fixture
def board(tmp_path: Path, ended: Contract) -> Iterator[Board]:
    auditors = frozenset({NAMED.address})
    with stored(tmp_path / "store", ended, auditors=auditors, quota_envelopes=3) as store:
        yield Board(store, ended.ledger.deployment().config)


def test_auditors_and_clients_attest_rounds_that_ended_long_ago(board: Board) -> None:
    client = signers()[2]
    assert board.send(board.attestation(NAMED), NAMED).status_code == 201
    assert board.send(board.attestation(NAMED), NAMED).status_code == 200
    assert board.send(board.attestation(client), client).status_code == 201
    assert board.send(board.attestation(NAMED, 0, ENDED), NAMED).status_code == 201
    assert (board.listed(), board.listed(ENDED), board.listed(2)) == (2, 1, 0)


def test_what_is_no_attestation_by_its_sender_is_refused(board: Board) -> None:
    one, client = board.attestation(NAMED), signers()[2]
    strangers, other_run = board.attestation(STRANGER), Digest(bytes([1] * 32))
    early, none = board.attestation(NAMED, 0, ENDED + 1), board.attestation(NAMED, 0, 99)
    beginning = board.attestation(NAMED, 0, 0)
    forged = board.attestation(STRANGER, auditor=NAMED.address)
    unsigned = board.attestation(NAMED, signature=bytes(65))
    unregistered = board.attestation(NAMED, PARAMETERS.clients)
    for answer, status, name in (
        (board.send(strangers, STRANGER), 403, "upload-refused"),
        (board.send(strangers, NAMED), 403, "upload-refused"),
        (board.send(one, client), 403, "upload-refused"),
        (board.send(one, client, index=ClientId(2)), 403, "upload-refused"),
        (board.send(one, NAMED, index=ClientId(0)), 403, "upload-refused"),
        (board.send(one, NAMED, round_number=2), 403, "upload-refused"),
        (board.send(forged, NAMED), 422, "envelope-invalid"),
        (board.send(unsigned, NAMED), 422, "envelope-invalid"),
        (board.send(board.attestation(NAMED, run=other_run), NAMED), 422, "envelope-invalid"),
        (board.send(unregistered, NAMED), 422, "envelope-invalid"),
        (board.send(early, NAMED), 409, "round-not-ended"),
        (board.send(none, NAMED), 409, "round-not-ended"),
        (board.send(beginning, NAMED), 409, "round-not-ended"),
    ):
        refused(answer, status, name)
    data = bytes(2_001)
    path = f"{board_of(one)}/{sha256(data).hex()}"
    headers = {"Authorization": "CMFL"}
    refused(board.store.http.put(path, content=data, headers=headers), 413, "body-too-large")
    assert not list((board.store.folder / "mail").rglob("*"))


def test_an_auditor_puts_nothing_but_attestations(board: Board) -> None:
    payload = PublishedPayload(Digest(bytes(32)))
    envelope = Envelope(board.store.domain, ENDED + 1, ClientId(0), payload)
    refused(board.send(envelope, NAMED), 403, "upload-refused")
    refused(board.send(envelope, NAMED, index=ClientId(0)), 403, "upload-refused")
    blob = b"a blob"
    upload = Upload(
        ENDED + 1, AUDITOR, f"{board.store.url}{path_of(blob)}", sha256(blob), len(blob)
    )
    header = authorization_header(upload, sign(NAMED, board.store.domain, upload))
    answer = board.store.http.put(path_of(blob), content=blob, headers={"Authorization": header})
    refused(answer, 403, "upload-refused")


def test_an_auditor_has_a_quota_of_each_round_that_no_end_restores(
    board: Board, ended: Contract
) -> None:
    client = signers()[2]
    witnesses = [Digest(bytes([number] * 32)) for number in range(4)]
    mail = [board.attestation(NAMED, witness=witness) for witness in witnesses]
    assert [board.send(one, NAMED).status_code for one in mail] == [201, 201, 201, 429]
    told = refused(board.send(mail[3], NAMED), 429, "quota-exceeded")
    assert told["detail"].startswith(f"auditor 0x{NAMED.address.hex()} may put 3 of them")
    # Nobody else's quota is used up, and no other round's.
    assert board.send(board.attestation(client), client).status_code == 201
    assert board.send(board.attestation(NAMED, 0, 2), NAMED).status_code == 201
    charges = Charges(charges_file(board.store.folder, board.store.domain))
    assert charges.rounds() == []
    Retention(ended.ledger, FolderBlobs(board.store.folder), charges, 1).remove_old()
    charges.close()
    refused(board.send(mail[3], NAMED), 429, "quota-exceeded")
    assert (board.listed(), board.listed(2)) == (4, 1), "what coverage reads stays"


def test_clients_leave_half_to_auditors(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.store.routes.MAX_FOLDER_OBJECTS", 2 * PARAMETERS.clients)
    client = signers()[2]
    assert board.send(board.attestation(client), client).status_code == 201
    refused(board.send(board.attestation(client, 1), client), 429, "quota-exceeded")
    for number in range(3):
        assert board.send(board.attestation(NAMED, number), NAMED).status_code == 201


def test_removal_of_old_mail_leaves_attestations(board: Board) -> None:
    board.send(board.attestation(NAMED), NAMED)
    folder = board.store.folder
    payload = Envelope(board.store.domain, 1, ClientId(0), PublishedPayload(Digest(bytes(32))))
    mailbox_at(str(folder)).put(payload)
    assert remove_mail(folder, board.store.domain, 5) == [1]
    assert remove_mail(folder, board.store.domain, 5) == []
    assert board.listed() == 1
