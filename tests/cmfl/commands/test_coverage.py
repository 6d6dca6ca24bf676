"""Attestations of auditors: signed by `cmfl verify training --sign`, folded by `cmfl coverage`."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from eth_account import Account

import cmfl as cmfl_package
from api.settings import Settings
from clients.random_streams import simulated_signers
from cmfl.access.target import Target
from ledger.chain.addresses import checksum
from ledger.chain.contract.manifest import read_run_manifest
from ledger.io.home import Home
from ledger.protocol.documents.envelope import Attestation, Envelope, EnvelopeKind
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.training_replay import ReplayVerdict, replay_witness
from ledger.storage.opening import mailbox_at
from ledger.storage.uploads import AUDITOR as AUDITOR_INDEX
from ledger.storage.uploads import UploadSigner
from tests.api.conftest import serving
from tests.api.store.conftest import served
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ledger.protocol.types import Domain
    from ledger.storage.mailbox import Mailbox

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

    def put(
        self,
        envelope: Envelope,
        signer: KeySigner,
        mailbox: Mailbox | None = None,
        **changed: object,
    ) -> None:
        """Sign somebody's attestation, with something changed, by another key."""
        body = envelope.body
        assert isinstance(body, Attestation)
        forged = replace(body, auditor=signer.address, **changed)  # type: ignore[arg-type]
        statement = forged.statement(envelope.round, envelope.client)
        signed = replace(forged, signature=sign(signer, self.domain, statement))
        (mailbox or mailbox_at(str(self.home / "blobs"))).put(replace(envelope, body=signed))


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
    assert shown["auditors"] == [checksum(AUDITOR.address)]
    assert shown["counts"]["other"] > 0
    assert (shown["first"], shown["last"], shown["ended"]) == (1, 5, 5)
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
    for command in (("coverage",), ("verify", "training")):
        missing = refusal(*command, "--home", signed.home, "--mailbox", tmp_path / "nowhere")
        assert "is no folder" in missing, "else a slip of the pen looks like no mail"
    (tmp_path / "file").write_text("")
    assert refusal(*asked, "--mailbox", tmp_path / "file")
    assert "address" in refusal("coverage", "--home", signed.home, "--auditor", "0x12")
    assert "--rounds 2" in refusal("coverage", "--home", signed.home, "--rounds", "2")
    assert "rounds 4..9" in refusal("coverage", "--home", signed.home, "--rounds", "4..9")


def test_false_auditors_without_end_hide_nothing(audited: Audited) -> None:
    honest = audited.mail()
    same = next(e for e in honest if e.body.verdict is ReplayVerdict.SAME)  # type: ignore[union-attr]
    for number in range(25):
        key = KeySigner(bytes([100 + number] * 32))
        audited.put(same, key, verdict=ReplayVerdict.OTHER)
    lines = succeeds("coverage", "--home", audited.home).out.splitlines()
    assert sum(line.startswith("auditor ") for line in lines) == 20
    assert "and 6 more auditors: --auditor counts those you trust" in lines
    (disputed,) = (line for line in lines if line.startswith(f"round 1, client {same.client}: "))
    assert disputed.endswith(", and 6 more")
    asked = ("verify", "training", "--home", audited.home, "--client", same.client, "--round", "1")
    result = cmfl(*asked)
    assert result.code == 0, "no attestation changes a verdict"
    first, *_, last = result.out.splitlines()
    assert first.startswith("1 of 1 updates same")
    assert last == "and 5 more false attestations: -v shows all"
    assert result.out.count(": false: ") == 20


@pytest.mark.parametrize("changed", ["run", "witness", "client"])
def test_a_worthless_attestation_changes_no_exit_code(audited: Audited, changed: str) -> None:
    same = next(e for e in audited.mail() if e.body.verdict is ReplayVerdict.SAME)  # type: ignore[union-attr]
    if changed == "client":
        audited.put(replace(same, client=type(same.client)(99)), LIAR)
    else:
        audited.put(same, LIAR, None, **{changed: bytes(32)})
    asked = ("verify", "training", "--home", audited.home, "--client", same.client, "--round", "1")
    shown = succeeds(*asked, "--json").json
    findings = [row["finding"] for row in shown["attestations"]]
    assert sorted(findings) == sorted(["confirmed", *["false"] * (changed == "witness")])


def test_a_client_may_be_the_auditor(audited: Audited) -> None:
    client = simulated_signers(0, 14)[0]
    audited.put(audited.mail()[0], client)
    shown = succeeds("coverage", "--home", audited.home, "--json").json
    assert checksum(client.address) in shown["auditors"]


@contextmanager
def stored(audited: Audited, *auditors: KeySigner) -> Iterator[str]:
    """Yield the URL of a store over the home's blobs, in which some auditors may write."""
    target = Target(audited.home)
    named = frozenset(auditor.address for auditor in auditors)
    with (
        target.reader() as chain,
        served(audited.home / "blobs", target.ledger(chain), auditors=named) as url,
    ):
        yield url


def test_a_false_attestation_is_found_over_a_served_store(audited: Audited) -> None:
    removed = audited.mail()
    shutil.rmtree(audited.home / "blobs" / "mail")
    asked = ("verify", "training", "--home", audited.home, "--round", "1", "--json")
    with stored(audited, AUDITOR, LIAR) as url:
        uploads = UploadSigner(audited.domain, LIAR, AUDITOR_INDEX, round=1)
        false = next(e for e in removed if e.body.verdict is ReplayVerdict.OTHER)  # type: ignore[union-attr]
        audited.put(false, LIAR, mailbox_at(url, uploads), verdict=ReplayVerdict.SAME)
        result = cmfl(*asked, *audited.key, "--blobs", url).json
        assert (result["published"], result["unpublished"]) == (len(removed), "")
        (found,) = result["attestations"]
        assert (found["client"], found["finding"]) == (false.client, "false")
        ours = succeeds("coverage", "--home", audited.home, "--blobs", url, "--json").json
    disputed = [each for each in ours["updates"] if each["verdict"] == "disputed"]
    assert [each["client"] for each in disputed] == [false.client]
    by = {each["auditor"]: each["verdict"] for each in disputed[0]["attestations"]}
    assert by == {checksum(AUDITOR.address): "other", checksum(LIAR.address): "same"}


@pytest.mark.usefixtures("brief_pauses")
def test_a_refused_publication_loses_no_result(audited: Audited, tmp_path: Path) -> None:
    asked = ("verify", "training", "--home", audited.home, "--round", "1", *audited.key)
    report = tmp_path / "report.json"
    with stored(audited) as url:
        refused = cmfl(*asked, "--blobs", url, "--report", report)
    assert refused.code == 2
    assert "upload-refused" in refused.err
    assert "of the attestations 0 are in the mailbox" in refused.err
    assert refused.err.count("\n") == 1
    assert "updates same" in refused.out
    assert "attestations signed" not in refused.out
    written = json.loads(report.read_text())
    found = {each["client"]: each["verdict"] for each in written["updates"]}
    shown = (each for each in audited.shown["updates"] if each["round"] == 1)
    assert found == {each["client"]: each["verdict"] for each in shown}
    away = cmfl(*asked, "--mailbox", url, "--json")
    assert away.code == 2
    assert len(away.json["updates"]) == len(written["updates"])
    assert (away.json["published"], bool(away.json["unpublished"])) == (0, True)


def test_command_service_and_python_give_one_coverage(audited: Audited) -> None:
    other = next(e for e in audited.mail() if e.body.verdict is ReplayVerdict.OTHER)  # type: ignore[union-attr]
    audited.put(other, LIAR, verdict=ReplayVerdict.SAME)
    trusted = checksum(AUDITOR.address)
    home = cmfl_package.coverage(audited.home)
    assert home.as_dict() == succeeds("coverage", "--home", audited.home, "--json").json
    ours = cmfl_package.coverage(audited.home, rounds=[1, 2], auditors=[trusted])
    with serving(Settings(home=audited.home)) as client:
        url = str(client.base_url)
        assert succeeds("coverage", "--api", url, "--json").json == home.as_dict()
        options = ("--rounds", "1..2", "--auditor", trusted, "--json")
        assert succeeds("coverage", "--api", url, *options).json == ours.as_dict()
        connected = cmfl_package.connect(url)
        assert cmfl_package.coverage(connected).as_dict() == home.as_dict()
        assert "no chain" in refusal("coverage", "--api", url, "--mailbox", audited.home)
        assert "no effect" in refusal("coverage", "--api", url, "--blobs", audited.home)
        assert "1..9" in refusal("coverage", "--api", url, "--rounds", "1..9")
    (row,) = [row for row in home.updates if row["verdict"] == "disputed"]
    assert (row["client"], row["same"], row["other"]) == (
        other.client,
        checksum(LIAR.address),
        trusted,
    )
    assert (home.counts["disputed"], ours.counts["disputed"]) == (1, 0)
    assert home.rounds == (1, 5)
    assert home.sentence in repr(home)
    assert home.sentence in home._repr_html_()
    assert list(home.to_pandas().columns) == ["round", "client", "verdict", "same", "other"]
    assert home.auditors
    lines = succeeds("coverage", "--home", audited.home).out
    assert f"round 1, client {other.client}: " in lines
    assert f"same by {checksum(LIAR.address)}" in lines
