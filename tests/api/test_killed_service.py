"""A service that is killed, by kill -9: no audit goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.api.conftest import root_of
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


def killed_while_it_verifies(service: Forked, address: str) -> None:
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


def test_the_audit_of_a_killed_service_ends(home: Path, address: str, forks: Forks) -> None:
    killed_while_it_verifies(forks.start("serve", "--home", str(home), "--port", "0"), address)
