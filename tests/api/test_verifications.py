"""Audits on request: the same as on the command line, bounded, and never a verdict without one."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.schemas.verifications import Verification, VerificationState, WhyNoVerdict
from api.settings import Settings, VerificationBounds
from api.verifications.audit_worker import AuditTask, run_audit, summary_of
from api.verifications.process import ProcessResult, run_in_process
from api.verifications.queue import (
    AlreadyVerifyingError,
    QueueFullError,
    VerificationOrder,
    Verifications,
)
from api.verifications.reports import ReportFolder, ReportsError
from ledger.audit.earlier_report import EarlierReportError, report_bytes
from ledger.audit.report import AuditOutcome
from ledger.history.paths import ChainPath, DeploymentPath
from ledger.protocol.encoding import sha256
from ledger.storage.blobs import FolderBlobs
from tests.api import verifying
from tests.api.conftest import deployments, refused, running, serving
from tests.api.test_events import received
from tests.cmfl.commands.conftest import cmfl
from tests.faults import times
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    import httpx

    from tests.audit.runs import Run

pytestmark = pytest.mark.xdist_group("web")

TOKEN = "a token that this test has made up"
CHAIN = ChainPath(5, b"\x5c" * 32)
ADDRESSES = (
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
)


def test_the_service_comes_to_what_the_command_comes_to(
    client: httpx.Client, verified: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    result = cmfl("audit", "--home", home, "--report", tmp_path / "report.json", "--jobs", 1)
    assert result.code == 0
    assert (verified["state"], verified["why"]) == ("finished", None)
    answer = client.get(verified["links"]["report"])
    assert answer.content == (tmp_path / "report.json").read_bytes()
    assert answer.headers["content-disposition"].startswith("attachment")
    told = answer.json()
    assert verified["verdict"]["outcome"] == told["outcome"] == "passed"
    assert verified["verdict"]["final_head"] in result.out
    assert verified["progress"]["done"] == told["rounds"] == 9
    assert [one["outcome"] for one in verified["progress"]["steps"]] == ["passed"] * 10
    liars = [one for one in told["findings"] if one["kind"] == "false scores"]
    assert liars
    for lie in liars:
        assert f"client {lie['clients'][0]}: false scores: {lie['sentence']}" in result.out


def test_who_comes_back_is_told_what_is_new(client: httpx.Client, verified: dict[str, Any]) -> None:
    path, last = verified["links"]["events"], verified["sequence"]
    assert last > 3
    (event,) = received(client, path, 1, **{"Last-Event-ID": str(last - 1)})
    assert (event["event"], event["id"], event["data"]) == ("standing", str(last), verified)
    answer = client.get(path, headers={"Last-Event-ID": str(last)})
    assert (answer.status_code, answer.content) == (204, b"")


def test_finished_verification_is_not_cancelled_and_an_unknown_not_found(
    client: httpx.Client, verified: dict[str, Any]
) -> None:
    path = verified["links"]["self"]
    refused(client.delete(path), 409, "verification-over")
    assert client.get(path).json() == verified
    other = f"{path[:-1]}{'0' if path[-1] != '0' else '1'}"
    for method in ("GET", "DELETE"):
        refused(client.request(method, other), 404, "verification-not-found")
    for below in ("report", "events"):
        refused(client.get(f"{other}/{below}"), 404, "verification-not-found")
    refused(client.get(f"{path.rpartition('/')[0]}/..%2f..%2fchain"), 404)
    refused(client.get(f"{path}0"), 422, "request-invalid")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"", "request-invalid"),
        (b"{", "request-invalid"),
        (b"[]", "request-invalid"),
        (b'{"strict": "yes"}', "request-invalid"),
        (b'{"rounds": 3}', "request-invalid"),
        (b'{"head": "0x5c"}', "request-invalid"),
        (b'{"since": "../../chain.sqlite"}', "request-invalid"),
        (b'{"strict": true, "head": ' + b"[" * 5_000, "request-invalid"),
    ],
)
def test_what_is_no_request_for_one_is_refused(
    client: httpx.Client, root: str, body: bytes, name: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post(f"{root}/verifications", content=body, headers=headers)
    refused(answer, 422, name)


def test_a_body_is_bounded_by_header_and_by_length(client: httpx.Client, root: str) -> None:
    headers = {"Content-Type": "application/json"}
    path, large = f"{root}/verifications", b" " * 20_000
    refused(client.post(path, content=large, headers=headers), 413, "body-too-large")
    refused(client.post(path, content=iter([large]), headers=headers), 413)
    answer = client.post(path, content=b"{}", headers={"Content-Type": "text/plain"})
    refused(answer, 422, "request-invalid")  # what a foreign page can send unasked begins nothing


def unknown(root: str) -> tuple[str, dict[str, str]]:
    """Return a request that fails only after it was found to be allowed: it costs no audit."""
    return f"{root}/verifications", {"since": "20260101T000000000Z-5c5c5c5c"}


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"Origin": "https://other.example"},
        {"Origin": "null"},
    ],
)
def test_without_a_token_only_this_machine_begins_one(
    client: httpx.Client, root: str, headers: dict[str, str]
) -> None:
    path, body = unknown(root)
    refused(client.post(path, json=body, headers=headers), 403, "verification-refused")
    refused(client.delete(f"{path}/{body['since']}", headers=headers), 403, "verification-refused")
    refused(client.post(path, json=body), 404, "verification-not-found")
    rebound = {"Host": "rebound.example"}
    refused(client.post(path, json=body, headers=rebound), 421, "host-not-served")
    address = {"Host": "10.0.0.1"}
    refused(client.post(path, json=body, headers=address), 403, "verification-refused")
    own = {"Origin": str(client.base_url).rstrip("/")}
    refused(client.post(path, json=body, headers=own), 404, "verification-not-found")


def test_a_token_is_needed_where_there_is_one(
    home: Path, kept_reports: Path, verified: dict[str, Any]
) -> None:
    settings = Settings(home=home, tokens=(TOKEN,), reading_is_open=True, reports=kept_reports)
    with serving(settings) as client:
        path, body = unknown(deployments(client)[0]["links"]["self"])
        told = client.get(path).json()
        assert told["permission"] == "token_needed"
        assert verified in told["verifications"], "reports outlive the service that kept them"
        refused(client.post(path, json=body), 401, "token-needed")
        shown = {"Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "192.0.2.1"}
        assert client.get(path, headers=shown).json()["permission"] == "granted"
        refused(client.post(path, json=body, headers=shown), 404, "verification-not-found")
    with serving(settings.model_copy(update={"verifications": False})) as client:
        assert client.get(path).json()["permission"] == "off"
        refused(client.post(path, json=body, headers=shown), 403, "verification-refused")


def task(folder: Path, **changes: Any) -> AuditTask:
    """Return what a process is told that audits nothing."""
    told = {
        "chain_file": folder / "none",
        "rpc_url": None,
        "rpc_timeout_seconds": 1.0,
        "chain_id": 5,
        "genesis": CHAIN.genesis,
        "address": ADDRESSES[0],
        "from_block": 0,
        "blob_folder": folder,
        "strict": False,
        "head": None,
        "earlier": None,
        "memory_bytes": 2**28,
        "cpu_seconds": 60,
    }
    return AuditTask(**told | changes)


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("target", "changes", "seconds", "why"),
    [
        (verifying.take_memory, {}, PATIENCE_SECONDS, WhyNoVerdict.MEMORY),
        (verifying.half_a_report, {}, PATIENCE_SECONDS, WhyNoVerdict.WORKER_ENDED),
        (verifying.sleep, {}, 0.01, WhyNoVerdict.SECONDS),
        (verifying.take_time, {"cpu_seconds": 1}, PATIENCE_SECONDS, WhyNoVerdict.CPU_SECONDS),
        (verifying.fail, {}, PATIENCE_SECONDS, WhyNoVerdict.FAULT),
    ][: times(3, 5)],
)
def test_who_meets_a_bound_or_fails_comes_to_no_verdict(
    tmp_path: Path,
    target: Callable[[AuditTask, Connection], None],
    changes: dict[str, Any],
    seconds: float,
    why: WhyNoVerdict,
) -> None:
    ended = run_in_process(task(tmp_path, **changes), seconds, lambda: None, lambda _: None, target)
    state = (
        VerificationState.INTERRUPTED
        if why is WhyNoVerdict.WORKER_ENDED
        else VerificationState.STOPPED
    )
    assert ended == ProcessResult(state, why)


def until(verifications: Verifications, name: str, state: VerificationState) -> Verification:
    """Wait until a verification stands like this."""

    def found() -> Verification | None:
        one = verifications.find(name)
        return one if one is not None and one.state is state else None

    stands = wait_until(found, lambda: verifications.find(name))
    assert stands is not None
    return stands


def process_of(folder: Path) -> int:
    """Wait for the process that sleeps, and return its number."""
    path = folder / verifying.PROCESS_FILE
    text = wait_until(lambda: path.exists() and path.read_text())
    path.unlink()
    return int(text)


@pytest.mark.usefixtures("forked_children")
def test_one_verification_runs_and_others_wait_without_a_verdict(tmp_path: Path) -> None:
    reports, bounds = tmp_path / "reports", VerificationBounds(waiting=1, kept=2)
    verifications = Verifications(reports, bounds, verifying.sleep)
    first, second, third = (
        VerificationOrder(DeploymentPath(CHAIN, address), "first", None, task(tmp_path))
        for address in (*ADDRESSES, "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB")
    )
    try:
        one = verifications.begin(first).verification
        with pytest.raises(AlreadyVerifyingError, match=one):
            verifications.begin(first)
        two = verifications.begin(second).verification
        with pytest.raises(QueueFullError, match="1 verifications wait"):
            verifications.begin(third)
        assert until(verifications, two, VerificationState.WAITING).begun is None
        process_of(tmp_path)
        assert verifications.cancel(one).state is VerificationState.RUNNING
        ended = until(verifications, one, VerificationState.CANCELLED)
        assert (ended.verdict, ended.report, ended.why) == (None, None, None)
        os.kill(process_of(tmp_path), signal.SIGKILL)
        assert (
            until(verifications, two, VerificationState.INTERRUPTED).why
            is WhyNoVerdict.WORKER_ENDED
        )
        last = verifications.begin(first).verification
        verifications.begin(second)
        number = process_of(tmp_path)
    finally:
        verifications.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    found, unreadable = ReportFolder(reports, 2).read()
    assert [one.verification for one in found][1] == last, "the oldest are gone"
    assert {(one.state, one.why) for one in found} == {
        (VerificationState.INTERRUPTED, WhyNoVerdict.SERVICE_ENDED)
    }
    assert unreadable == 0


def test_a_service_that_is_killed_leaves_an_interrupted_one(
    tmp_path: Path, verified: dict[str, Any]
) -> None:
    running = verified | {"state": "running", "verdict": None, "report": None}
    killed = ReportFolder(tmp_path, 9)
    killed.own()
    killed.write(Verification.model_validate(running))
    reader = ReportFolder(tmp_path, 9)
    assert [one.state for one in reader.read()[0]] == [VerificationState.RUNNING], (
        "its service lives"
    )
    with pytest.raises(ReportsError, match="another service"):
        reader.own()
    killed.close()
    (found,), _ = reader.read()
    assert (found.state, found.why, found.verdict) == (
        VerificationState.INTERRUPTED,
        WhyNoVerdict.SERVICE_ENDED,
        None,
    )
    reader.own()
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["state"] == "interrupted"
    reader.close()


def test_a_replaced_report_is_not_served(tmp_path: Path, verified: dict[str, Any]) -> None:
    reports, entry = ReportFolder(tmp_path, 9), Verification.model_validate(verified)
    reports.own()
    assert reports.report(entry) is None
    reports.write_report(entry.verification, b'{"outcome": "passed"}')
    with pytest.raises(ReportsError, match="not the stored one"):
        reports.report(entry)
    reports.write(entry)
    (tmp_path / "20260101T000000000Z-5c5c5c5c.json").write_text("[" * 10_000)
    (tmp_path / f"{entry.verification[:-1]}x.json").symlink_to("/dev/zero")
    assert reports.read() == ([entry], 1)
    reports.close()


def test_reports_that_cannot_be_kept_begin_no_audit(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file")
    verifications = Verifications(tmp_path / "reports", VerificationBounds(), verifying.sleep)
    with pytest.raises(ReportsError, match="cannot be stored"):
        verifications.begin(
            VerificationOrder(DeploymentPath(CHAIN, ADDRESSES[0]), "x", None, task(tmp_path))
        )
    assert verifications.all() == ([], 0)


def test_an_earlier_report_must_have_passed_for_this_deployment(
    client: httpx.Client, root: str, verified: dict[str, Any], kept_reports: Path
) -> None:
    path = kept_reports / f"{verified['verification']}.json"
    kept = path.read_bytes()
    asked = {"since": verified["verification"]}
    try:
        other = verified | {"address": ADDRESSES[0]}
        path.write_text(json.dumps(other))
        answer = client.post(f"{root}/verifications", json=asked)
        refused(answer, 404, "verification-not-found")
        path.write_text(json.dumps(verified | {"report": None}))
        answer = client.post(f"{root}/verifications", json=asked)
        assert "has no report" in refused(answer, 409, "earlier-report-refused")["detail"]
    finally:
        path.write_bytes(kept)


@pytest.fixture
def honest_task(honest: Run, tmp_path: Path) -> AuditTask:
    """Return the audit of a small run that others have played."""
    blobs = FolderBlobs(tmp_path / "blobs")
    for digest in honest.blobs.digests():
        blobs.put(honest.blobs.get(digest))
    return task(
        tmp_path,
        chain_file=honest.chain._store.path,
        chain_id=honest.chain.chain_id,
        genesis=honest.chain.genesis_hash,
        address=honest.ledger.address,
        from_block=honest.ledger.from_block,
        blob_folder=tmp_path / "blobs",
    )


def test_a_corrupt_payload_fails_and_names_whose_it_is(honest: Run, honest_task: AuditTask) -> None:
    owner = honest.trainers[0]
    name = sha256(honest.payload(owner)).hex()
    (honest_task.blob_folder / name[:2] / name).write_bytes(b"another")
    told: list[int] = []
    summary = summary_of(run_audit(honest_task, lambda now: told.append(now.done)))
    assert summary["verdict"]["outcome"] == AuditOutcome.FAILED
    assert summary["verdict"]["named"] == [owner]
    assert told[-1] == summary["verdict"]["rounds"] == summary["progress"]["done"]


def test_a_chain_reorganised_since_the_earlier_report_fails(
    honest_task: AuditTask,
) -> None:
    report = json.loads(report_bytes(run_audit(honest_task, lambda _: None)))
    assert report["outcome"] == "passed"
    report["deployment"]["head_block_hash"] = "0x" + "5c" * 32  # as of a fork that is gone
    later = replace(honest_task, earlier=json.dumps(report).encode())
    summary = summary_of(run_audit(later, lambda _: None))
    assert summary["verdict"]["outcome"] == AuditOutcome.FAILED
    report["deployment"]["address"] = ADDRESSES[0]
    of_another = replace(honest_task, earlier=json.dumps(report).encode())
    with pytest.raises(EarlierReportError, match="contract"):
        run_audit(of_another, lambda _: None)


def test_a_service_stops_cleanly_during_a_followed_verification(home: Path, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    with running(Settings(home=home, reports=reports)) as (client, server):
        # A real audit could be over before the service is.
        endless = Verifications(reports, VerificationBounds(), verifying.go_on)
        server.config.app.state.verifications = endless  # type: ignore[union-attr]
        root = deployments(client)[0]["links"]["self"]
        links = client.post(f"{root}/verifications", json={}).json()["links"]
        with (
            client.stream("GET", links["events"], timeout=PATIENCE_SECONDS) as followed,
            client.stream("GET", f"{root}/events", timeout=PATIENCE_SECONDS) as other,
        ):
            told = followed.iter_raw()
            next(told)
            server.should_exit = True
            for stream in (told, other.iter_raw()):
                assert len(list(stream)) < 9, "both end, and nobody waits for readers that stay"
    (found,), _ = ReportFolder(reports, 9).read()
    assert (found.state, found.why, found.verdict) == (
        VerificationState.INTERRUPTED,
        WhyNoVerdict.SERVICE_ENDED,
        None,
    )
