"""Audits on request: the same report as on the command line, bounded, one at a time."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.routes import verifications
from api.routes.verifications import (
    AuditTask,
    RequestedAudit,
    Verifications,
    VerificationState,
    WhyStopped,
    limit_resources,
    run_task,
)
from api.settings import Settings
from ledger.history.fields import ChainPath
from ledger.io.processes import follow_parent
from tests.api.conftest import deployments, refused, root_of, running, serving
from tests.cmfl.commands.conftest import cmfl
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from tests.processes import Forked, Forks

TOKEN = "a token that this test has made up"
CHAIN = ChainPath(5, b"\x5c" * 32)
ADDRESSES = (
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
)


def test_the_service_returns_the_report_of_the_command(
    client: httpx.Client, root: str, verified: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    result = cmfl("audit", "--home", home, "--report", tmp_path / "report.json", "--jobs", 1)
    assert (verified["state"], verified["why"], result.code) == ("finished", None, 0)
    answer = client.get(verified["links"]["report"])
    assert answer.content == (tmp_path / "report.json").read_bytes()
    assert verified["report_sha256"] == f"0x{hashlib.sha256(answer.content).hexdigest()}"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert verified["outcome"] == answer.json()["outcome"] == "passed"
    assert client.get(f"{root}/verifications").json()["verifications"] == [verified]


def test_unknown_verification_is_not_found(client: httpx.Client, verified: dict[str, Any]) -> None:
    path = verified["links"]["self"]
    other = f"{path[:-1]}{'0' if path[-1] != '0' else '1'}"
    refused(client.get(other), 404, "verification-not-found")
    refused(client.get(f"{other}/report"), 404, "verification-not-found")
    refused(client.get(f"{path.rpartition('/')[0]}/..%2f..%2fchain"), 404)
    refused(client.get(f"{path}0"), 422, "request-invalid")


def test_a_body_is_bounded_by_header_and_by_length(client: httpx.Client, root: str) -> None:
    headers = {"Content-Type": "application/json"}
    path, large = f"{root}/verifications", b" " * 20_000
    refused(client.post(path, content=large, headers=headers), 413, "body-too-large")
    refused(client.post(path, content=iter([large]), headers=headers), 413, "body-too-large")
    answer = client.post(path, content=b"{}", headers={"Content-Type": "text/plain"})
    refused(answer, 422, "request-invalid")  # what a foreign page can send unasked begins nothing


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
def test_only_this_machine_begins_one(
    client: httpx.Client, root: str, headers: dict[str, str]
) -> None:
    path = f"{root}/verifications"
    assert client.get(path).json()["permission"] == "granted"
    refused(client.post(path, json={}, headers=headers), 403, "verification-refused")
    rebound = {"Host": "rebound.example"}
    refused(client.post(path, json={}, headers=rebound), 421, "host-not-served")
    address = {"Host": "10.0.0.1"}
    refused(client.post(path, json={}, headers=address), 403, "verification-refused")


def test_a_token_is_needed_where_there_is_one(home: Path) -> None:
    settings = Settings(home=home, tokens=(TOKEN,), reading_is_open=True)
    shown = {"Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "192.0.2.1"}
    with serving(settings) as client:
        path = f"{deployments(client)[0]['links']['self']}/verifications"
        assert client.get(path).json()["permission"] == "token_needed"
        refused(client.post(path, json={}), 401, "token-needed")
        assert client.get(path, headers=shown).json()["permission"] == "granted"
    with serving(settings.model_copy(update={"verifications": False})) as client:
        assert client.get(path).json()["permission"] == "off"
        refused(client.post(path, json={}, headers=shown), 403, "verification-refused")


def sleep(task: AuditTask, _out: Connection) -> None:
    follow_parent()
    (task.settings.home / "process").write_text(str(os.getpid()))
    time.sleep(600)


def take_memory(task: AuditTask, out: Connection) -> None:
    size = 2 * task.settings.verification_memory_bytes
    verifications.run_audit = lambda _: bytearray(size)  # type: ignore[assignment,return-value]
    run_task(task, out)


def take_time(task: AuditTask, _out: Connection) -> None:
    limit_resources(task.settings)
    while True:
        pass


def half_a_report(_task: AuditTask, out: Connection) -> None:
    out.send_bytes(b"passed")


def task(folder: Path, address: str = ADDRESSES[0], **limits: Any) -> AuditTask:
    return AuditTask(Settings(home=folder, **limits), CHAIN, address, 0)


def ended(runs: Verifications, begun: RequestedAudit) -> RequestedAudit:
    """Wait for the end of an audit, and return it."""

    def found() -> RequestedAudit | None:
        one, _ = runs.of(CHAIN, ADDRESSES[0])[begun.verification]
        return None if one.state is VerificationState.RUNNING else one

    one = wait_until(found)
    assert one is not None
    return one


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize(
    ("target", "limits", "seconds", "why"),
    [
        (run_task, {}, PATIENCE_SECONDS, WhyStopped.CHAIN),
        (half_a_report, {}, PATIENCE_SECONDS, WhyStopped.FAULT),
        (sleep, {}, 0.01, WhyStopped.SECONDS),
        (take_time, {"verification_seconds": 1}, PATIENCE_SECONDS, WhyStopped.SECONDS),
        (take_memory, {"verification_memory_bytes": 2**28}, PATIENCE_SECONDS, WhyStopped.MEMORY),
    ],
)
def test_an_audit_over_a_limit_has_no_outcome(
    tmp_path: Path,
    target: Callable[[AuditTask, Connection], None],
    limits: dict[str, Any],
    seconds: float,
    why: WhyStopped,
) -> None:
    runs = Verifications(seconds, target)
    begun, _ = runs.begin(task(tmp_path, **limits))
    one = ended(runs, begun)
    assert (one.state, one.why, one.outcome) == (VerificationState.STOPPED, why, None)
    assert one.report_sha256 is None
    assert runs.of(CHAIN, ADDRESSES[0])[one.verification] == (one, b"")


@pytest.mark.usefixtures("forked_children")
def test_one_audit_runs_at_a_time_and_ends_with_the_service(tmp_path: Path) -> None:
    runs = Verifications(PATIENCE_SECONDS, sleep)
    begun, is_new = runs.begin(task(tmp_path))
    assert is_new
    for address in ADDRESSES:
        assert runs.begin(task(tmp_path, address)) == (begun, False)
    running = {begun.verification: (begun, b"")}
    assert (runs.of(CHAIN, ADDRESSES[0]), runs.of(CHAIN, ADDRESSES[1])) == (running, {})
    file = tmp_path / "process"
    process = int(wait_until(lambda: file.exists() and file.read_text()))
    runs.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    stopped, _ = runs.of(CHAIN, ADDRESSES[0])[begun.verification]
    assert stopped.why is WhyStopped.FAULT


def test_a_service_stops_cleanly_during_an_audit(home: Path) -> None:
    with running(Settings(home=home)) as (client, server):
        # A real audit could be over before the service is.
        endless = Verifications(PATIENCE_SECONDS, sleep_only)
        server.config.app.state.verifications = endless  # type: ignore[union-attr]
        root = deployments(client)[0]["links"]["self"]
        assert client.post(f"{root}/verifications", json={}).status_code == 202
        with client.stream("GET", f"{root}/events", timeout=PATIENCE_SECONDS) as other:
            server.should_exit = True
            assert len(list(other.iter_raw())) < 9, "it ends, and does not wait for its reader"


def sleep_only(_task: AuditTask, _out: Connection) -> None:
    follow_parent()
    time.sleep(600)


# A service that is killed, by kill -9: no audit goes on.


def children_of(service: Forked) -> list[int]:
    lists = Path(f"/proc/{service.pid}/task").glob("*/children")
    return [int(number) for one in lists for number in one.read_text().split()]


def has_ended(process: int) -> bool:
    """Say whether a process is gone, but for what whoever inherited it has yet to ask."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(") ")[2].startswith("Z")


def killed_while_it_verifies(service: Forked, address: str) -> None:
    with service:
        url = service.first_line().partition(" at ")[2].split()[0].rstrip("/,")
        with httpx.Client(
            base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS
        ) as client:
            begun = client.post(f"{root_of(client, address)}/verifications", json={})
            told: dict[str, Any] = begun.json()
            wait_until(lambda: bool(children_of(service)))
            assert client.get(told["links"]["self"]).json()["state"] == "running"
        children = children_of(service)
        service.kill()
    wait_until(lambda: all(map(has_ended, children)))


def test_the_audit_of_a_killed_service_ends(home: Path, address: str, forks: Forks) -> None:
    killed_while_it_verifies(forks.start("serve", "--home", str(home), "--port", "0"), address)
