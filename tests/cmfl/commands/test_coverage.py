"""Attestations of auditors: signed by `cmfl verify training --sign`, folded by `cmfl coverage`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from eth_account import Account

import cmfl as cmfl_package
from api.settings import Settings
from clients.runs.run_folder import manifest_of
from cmfl.where import Target
from ledger.chain.contract.ledger import read_run_manifest
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.rpc.server import RpcServer
from ledger.io.home import MANIFEST, Home
from ledger.protocol.documents.envelope import Attestation, Envelope, EnvelopeKind
from ledger.protocol.encoding import checksum
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.training_replay import ReplayVerdict
from ledger.protocol.types import Domain
from ledger.storage.http import AUDITOR as AUDITOR_INDEX
from ledger.storage.http import UploadSigner
from ledger.storage.mailbox import Mailbox
from ledger.storage.opening import mailbox_at
from tests.api.conftest import serving
from tests.api.store.conftest import served
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds

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
        return read_run_manifest(Home(self.home).run("run")).domain()

    def mail(self, round_number: int = 1) -> Sequence[Envelope]:
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
        assert "is not a local folder" in missing, "else a slip of the pen looks like no mail"
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
    assert "--sign: 0 attestations are in the mailbox" in refused.err
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
        assert "not a chain" in refusal("coverage", "--api", url, "--mailbox", audited.home)
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


@pytest.fixture(scope="module")
def honest(home: Path) -> list[int]:
    """Clients all of whose updates are the same, whatever else they did."""
    rows = cmfl("verify", "training", "--home", home, "--json").json["updates"]
    differing = {row["client"] for row in rows if row["verdict"] != "same"}
    assert len(differing) == 1, "one trainer sends infinities"
    return sorted({row["client"] for row in rows} - differing)


def test_honest_clients_end_with_0_and_a_report(
    home: Path, honest: list[int], tmp_path: Path
) -> None:
    chosen = [part for client in honest[:3] for part in ("--client", client)]
    report = tmp_path / "report.json"
    asked = ("verify", "training", "--home", home, *chosen, "--rounds", "1..2")
    shown = succeeds(*asked, "--json", "--report", report).json
    assert json.loads(report.read_text()) == shown
    assert shown["verdict"] == "same"
    assert {row["round"] for row in shown["updates"]} == {1, 2}
    first, second = succeeds(*asked).out.splitlines()
    assert first.endswith(" updates same, 0 other, 0 not checkable")
    assert "torch" in second
    lines = cmfl(*asked, "-v").out.splitlines()
    assert len(lines) == 2 + len(shown["updates"])


def test_an_interrupted_replay_prints_what_it_kept(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "results.jsonl"
    with patch("cmfl.commands.verify.replay_target", side_effect=KeyboardInterrupt):
        for options, kept in (
            ((), "without --log no result was kept"),
            (("--log", log), f"{log} has all results so far; repeat the same command to continue"),
        ):
            found = cmfl("verify", "training", "--home", home, "--round", 1, *options)
            assert (found.code, found.err) == (130, f"cmfl: interrupted; {kept}\n")


def test_a_result_names_the_update_that_it_was_found_for(
    home: Path, honest: list[int], tmp_path: Path
) -> None:
    log = tmp_path / "results.jsonl"
    asked = ("verify", "training", "--home", home, "--round", 1, "--client", honest[0])
    first = succeeds(*asked, "--log", log, "--json").json
    row = json.loads(log.read_text().splitlines()[0])
    log.write_text(f"{json.dumps(row | {'round': None, 'client': 'x'})}\n")
    assert succeeds(*asked, "--log", log, "--json").json == first
    for wrong in ({"reason": 1}, {"difference": {"relative": float("nan"), "spread": None}}):
        log.write_text(f"{json.dumps(row | wrong)}\n")
        assert "line 1 is not a result of a replay" in refusal(*asked, "--log", log)


def test_a_node_and_a_folder_of_blobs_are_enough(
    home: Path, honest: list[int], tmp_path: Path
) -> None:
    address = manifest_of(home, "run").address
    shutil.copy(home / "chain.sqlite", tmp_path)
    with (
        EmbeddedChain.open(tmp_path / "chain.sqlite", accept_rollback=True) as chain,
        RpcServer(chain) as server,
    ):
        node = ("--rpc-url", server.url, "--chain-id", chain.chain_id, "--address", address)
        asked = ("--blobs", home / "blobs", "--client", honest[0], "--json")
        shown = succeeds("verify", "training", *node, *asked).json
    near = succeeds("verify", "training", "--home", home, "--client", honest[0], "--json").json
    # The environments of a simulation are in its home alone.
    recorded = [{u.pop("recorded_environment") for u in each["updates"]} for each in (shown, near)]
    assert recorded == [{None}, {near["environment"]["class"]}]
    assert shown == near


def test_damaged_files_of_another_run_change_nothing(
    home: Path, honest: list[int], tmp_path: Path
) -> None:
    damaged = tmp_path / "home"
    shutil.copytree(home, damaged)
    runs = Home(damaged)
    for other, file in (("earlier", MANIFEST), ("later", "environments.jsonl")):
        shutil.copytree(runs.run("run").path, runs.run(other).path)
        (runs.run(other).path / file).write_text("[]\n")
    asked = ("verify", "training", "--home", damaged, "--run", "run", "--client", honest[0])
    shown = succeeds(*asked, "--round", "1", "--json").json
    assert shown["updates"][0]["recorded_environment"] == shown["environment"]["class"]


def test_an_audit_reports_training_apart_from_its_steps(home: Path) -> None:
    plain = succeeds("audit", "--home", home, "--json").json
    beside = succeeds("audit", "--home", home, "--json", "--training", 3).json
    training = beside.pop("training")
    assert beside == plain
    assert training["drawn"] == sum(training["counts"].values()) == 3
    (line,) = (
        line
        for line in succeeds("audit", "--home", home, "--training", 3).out.splitlines()
        if line.startswith("training, apart from the ten steps: 3 updates drawn")
    )
    assert "same" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--round", "1", "--rounds", "1..2"], "--round and --rounds exclude each other; give one"),
        (["--salt", "0x12", "--client", "1"], "--salt: must be 64 hex digits"),
        (["--report", "/"], "--report /: is a folder"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(
    home: Path, options: list[str], message: str
) -> None:
    assert message in refusal("verify", "training", "--home", home, *options)


def test_files_that_are_not_the_runs_data_accuse_nobody(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name in ("mine", "others"):
        samples = {"x": rng.random((120, 8, 8), np.float32), "y": np.arange(120) % 10}
        np.savez(tmp_path / f"{name}.npz", **samples)  # type: ignore[arg-type]
    whole = (tmp_path / "mine.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:-100])
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 1
    (tmp_path / "damaged.npz").write_bytes(damaged)
    home = tmp_path / "home"
    own = f"data.path={tmp_path / 'mine.npz'}"
    succeeds("run", "--preset", "smoke", "--home", home, "--set", own, "--set", "protocol.rounds=1")
    asked = ("verify", "training", "--home", home)
    assert "0 other, 0 not checkable" in succeeds(*asked).out
    for name in ("others.npz", "cut.npz", "damaged.npz"):
        result = cmfl(*asked, "--data", tmp_path / name)
        assert result.code == 3
        first, _, reason = result.out.splitlines()
        assert first.startswith("0 of 10 updates same, 0 other, 10 not checkable")
        assert name in reason
    (tmp_path / "mine.npz").unlink()
    assert "name the files" in cmfl(*asked).out
