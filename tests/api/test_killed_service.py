"""A service that is killed, by kill -9: the next one has its verifications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.client.service import Service
from api.schemas.verifications import VerificationState
from api.settings import Settings
from tests.api.conftest import refused, root_of, serving
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from tests.processes import Forked, Forks

pytestmark = pytest.mark.group("web")


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


def test_a_killed_service_has_its_verifications_again(
    home: Path, address: str, tmp_path: Path, forks: Forks
) -> None:
    reports = tmp_path / "reports"
    command = ["serve", "--home", str(home), "--reports", str(reports), "--port", "0"]
    lost = killed_while_it_verifies(forks.start(*command), address)
    kept = Settings(home=home, reports=reports)
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
