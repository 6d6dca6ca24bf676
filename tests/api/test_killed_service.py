"""A service that is killed, by kill -9: the next one has its index and its verifications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.client.service import Service
from api.schemas.verifications import VerificationState
from api.settings import Settings
from clients.runs.run_folder import manifest_of
from ledger.chain.contract.deployment import connect
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.index.database import Database
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import read, refused, root_of, serving
from tests.e2e.sessions import kill_when
from tests.faults import times
from tests.index.conftest import content, indexed, made
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from tests.processes import Forked, Forks

pytestmark = pytest.mark.xdist_group("web")


def children_of(service: Forked) -> list[int]:
    """Return the processes that a service has begun."""
    lists = Path(f"/proc/{service.pid}/task").glob("*/children")
    return [int(number) for one in lists for number in one.read_text().split()]


def has_ended(process: int) -> bool:
    """Say whether a process is gone, but for what whoever inherited it has yet to ask."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(") ")[2].startswith("Z")


def killed_while_it_verifies(service: Forked, address: str) -> dict[str, Any]:
    """Return the verification that a service was in the midst of."""
    with service:
        url = service.first_line().partition(" at ")[2].split()[0].rstrip("/,")
        with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            begun = client.post(f"{root_of(client, address)}/verifications", json={})
            told: dict[str, Any] = begun.json()
            wait_until(lambda: bool(children_of(service)))
            assert client.get(told["links"]["self"]).json()["state"] == "running"
        children = children_of(service)
        service.kill()
    wait_until(lambda: all(map(has_ended, children)))
    return told


def test_a_killed_service_has_its_index_and_its_verifications_again(
    home: Path, address: str, tmp_path: Path, forks: Forks
) -> None:
    index, reports = tmp_path / "index.sqlite", tmp_path / "reports"
    places = ["--home", str(home), "--index", str(index), "--reports", str(reports)]
    command = ["serve", *places, "--keep-index", "--port", "0"]
    # While it makes the index, then while it verifies.
    for delay_seconds in (0, 2, 3)[: times(0, 3)]:
        assert kill_when(forks.start(*command), index.exists, delay_seconds)
    lost = killed_while_it_verifies(forks.start(*command), address)
    kept = Settings(home=home, index=str(index), keeps_index=True, reports=reports)
    with serving(kept) as client, Service(str(client.base_url)) as service:
        path = lost["links"]["self"]
        told = client.get(path).json()
        assert (told["state"], told["why"]) == ("interrupted", "service_ended")
        assert (told["verdict"], told["report"]) == (None, None)
        refused(client.get(lost["links"]["report"]), 404, "report-not-found")
        refused(client.delete(path), 409, "verification-over")
        (chain,) = service.chains()["chains"]
        verifications = service.deployment(chain["name"], address).verifications
        again = verifications.begin()
        following = verifications.follow(again.verification, 0.05)
        wait_until(lambda: next(following).state is VerificationState.RUNNING)
        verifications.cancel(again.verification)
        *_, ended = following
        assert ended.state is VerificationState.CANCELLED
        names = [one.verification for one in verifications.all().verifications]
        assert names == [again.verification, lost["verification"]]

        def is_used() -> bool:
            (one,) = read(client, "/v1/status")["deployments"]
            return bool(one["index"] and one["index"]["used"])

        wait_until(is_used)
    fresh, grown = made(tmp_path / "fresh.sqlite"), Database(index)
    with EmbeddedReader.open(home / "chain.sqlite") as chain_file:
        ledger = connect(chain_file, manifest_of(home, "first"))
        indexed(fresh, ledger, FolderBlobs(home / "blobs"))
    assert content(grown) == content(fresh)
    fresh.close()
    grown.close()
