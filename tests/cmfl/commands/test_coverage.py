"""Attestations of auditors: signed by `cmfl verify training --sign`, folded by `cmfl coverage`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from eth_account import Account

from clients.random_streams import simulated_signers
from ledger.chain.contract.manifest import read_run_manifest
from ledger.io.home import Home
from ledger.protocol.documents.envelope import Attestation, Envelope, EnvelopeKind
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.training_replay import ReplayVerdict, replay_witness
from ledger.storage.opening import mailbox_at
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.protocol.types import Domain

pytestmark = SHARED

KEY = bytes([7] * 32)
AUDITOR = KeySigner(KEY)
LIAR = KeySigner(bytes([9] * 32))
PASSWORD = "not a secret"


class Audited:
    """A copy of the shared home whose first two rounds an auditor has repeated and signed."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = folder / "home"
        shutil.copytree(home, self.home)
        keystore, password = folder / "auditor.json", folder / "password"
        encrypted = Account.encrypt(KEY, PASSWORD, kdf="pbkdf2", iterations=2)
        keystore.write_text(json.dumps(encrypted))
        password.write_text(PASSWORD)
        self.key = ("--sign", keystore, "--password-file", password)
        asked = ("verify", "training", "--home", self.home, "--rounds", "1..2", "--json")
        self.shown = cmfl(*asked, *self.key).json

    @property
    def domain(self) -> Domain:
        """Of the run's contract."""
        return read_run_manifest(Home(self.home).run("run")).domain()

    def mail(self, round_number: int = 1) -> Sequence[Envelope]:
        """Return the attestations about a round."""
        mailbox = mailbox_at(str(self.home / "blobs"))
        return mailbox.listed(self.domain, round_number, EnvelopeKind.ATTESTATION)

    def put(self, envelope: Envelope, signer: KeySigner, **changed: object) -> None:
        """Sign somebody's attestation, with something changed, by another key."""
        body = envelope.body
        assert isinstance(body, Attestation)
        forged = replace(body, auditor=signer.address, **changed)  # type: ignore[arg-type]
        statement = forged.statement(envelope.round, envelope.client)
        signed = replace(forged, signature=sign(signer, self.domain, statement))
        mailbox_at(str(self.home / "blobs")).put(replace(envelope, body=signed))


@pytest.fixture(scope="module")
def signed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Return a home with attestations, which tests copy before they write to it."""
    return Audited(home, tmp_path_factory.mktemp("signed"))


@pytest.fixture
def audited(signed: Audited, tmp_path: Path) -> Audited:
    """Return a copy of it."""
    copy = object.__new__(Audited)
    copy.home, copy.key, copy.shown = tmp_path / "home", signed.key, signed.shown
    shutil.copytree(signed.home, copy.home)
    return copy


def test_coverage_shows_what_an_auditor_found(signed: Audited) -> None:
    shown = succeeds("coverage", "--home", signed.home, "--json").json
    found = {(row["round"], row["client"]): row["verdict"] for row in signed.shown["updates"]}
    for update in shown["updates"]:
        expected = found.get((update["round"], update["client"]), "none")
        assert update["verdict"] == expected
        assert len(update["attestations"]) == (expected != "none")
    assert shown["auditors"] == [f"0x{AUDITOR.address.hex()}"]
    assert shown["counts"]["other"] > 0
    assert shown["rounds"] == [1, 5]
    lines = succeeds("coverage", "--home", signed.home, "--rounds", "1..2").out.splitlines()
    assert " attested: " in lines[0]
    assert any(line.startswith("     1  ") and "X" in line for line in lines)


def test_only_trusted_auditors_count_if_they_are_named(signed: Audited) -> None:
    ours, other = f"0x{AUDITOR.address.hex()}", f"0x{LIAR.address.hex()}"
    trusted = succeeds("coverage", "--home", signed.home, "--auditor", ours, "--json").json
    assert trusted["counts"]["same"] > 0
    nobody = succeeds("coverage", "--home", signed.home, "--auditor", other, "--json").json
    assert nobody["counts"]["none"] == len(nobody["updates"])


def test_an_attestation_shows_no_losses_and_differs_by_auditor(signed: Audited) -> None:
    witnesses = {envelope.body.witness for envelope in signed.mail()}  # type: ignore[union-attr]
    assert len(witnesses) == len(signed.mail()) > 1
    assert replay_witness(AUDITOR.address, b"") != replay_witness(LIAR.address, b"")


def test_a_copied_witness_and_a_false_verdict_are_named(audited: Audited) -> None:
    same = next(e for e in audited.mail() if e.body.verdict is ReplayVerdict.SAME)  # type: ignore[union-attr]
    other = next(e for e in audited.mail() if e.body.verdict is ReplayVerdict.OTHER)  # type: ignore[union-attr]
    audited.put(same, LIAR)
    audited.put(other, LIAR, verdict=ReplayVerdict.SAME)
    asked = ("verify", "training", "--home", audited.home, "--round", "1")
    rows = cmfl(*asked, "--json").json["attestations"]
    false = {row["client"] for row in rows if row["finding"] == "false"}
    assert false == {same.client, other.client}
    assert all(row["auditor"] == f"0x{LIAR.address.hex()}" for row in rows if row["reason"])
    confirmed = [row for row in rows if row["finding"] == "confirmed"]
    assert len(confirmed) == len(audited.mail()) - 2
    assert f"by 0x{LIAR.address.hex()}: false" in cmfl(*asked).out
    shown = succeeds("coverage", "--home", audited.home, "--json").json
    disputed = [u["client"] for u in shown["updates"] if u["verdict"] == "disputed"]
    assert disputed == [other.client]


def test_an_attestation_of_another_environment_cannot_be_compared(audited: Audited) -> None:
    first = audited.mail()[0]
    elsewhere = replace(first.body.environment, isa="another")  # type: ignore[union-attr]
    audited.put(first, LIAR, environment=elsewhere)
    asked = ("verify", "training", "--home", audited.home, "--round", "1", "--json")
    findings = {row["finding"] for row in cmfl(*asked).json["attestations"]}
    assert findings == {"confirmed", "not comparable"}


def test_attestations_that_are_not_genuine_do_not_count(audited: Audited) -> None:
    before = succeeds("coverage", "--home", audited.home, "--json").json
    envelope = audited.mail()[0]
    mailbox = mailbox_at(str(audited.home / "blobs"))
    body = envelope.body
    assert isinstance(body, Attestation)
    mailbox.put(replace(envelope, body=replace(body, auditor=LIAR.address)))  # another's signature
    audited.put(envelope, LIAR, run=bytes(32))  # another run's
    nobody = replace(envelope, client=type(envelope.client)(99))
    audited.put(nobody, LIAR)  # about nobody
    assert succeeds("coverage", "--home", audited.home, "--json").json == before


def test_what_cannot_be_attested_is_refused(signed: Audited, tmp_path: Path) -> None:
    asked = ("verify", "training", "--home", signed.home, "--round", "1", *signed.key)
    assert "--sign with --trained-here" in refusal(*asked, "--trained-here")
    assert "--sign with --poisoned" in refusal(*asked, "--poisoned")
    (tmp_path / "file").write_text("")
    assert refusal(*asked, "--mailbox", tmp_path / "file")
    assert "address" in refusal("coverage", "--home", signed.home, "--auditor", "0x12")
    assert "--rounds 2" in refusal("coverage", "--home", signed.home, "--rounds", "2")
    assert "rounds 4..9" in refusal("coverage", "--home", signed.home, "--rounds", "4..9")


def test_a_client_may_be_the_auditor(audited: Audited) -> None:
    client = simulated_signers(0, 14)[0]
    audited.put(audited.mail()[0], client)
    shown = succeeds("coverage", "--home", audited.home, "--json").json
    assert f"0x{client.address.hex()}" in shown["auditors"]
