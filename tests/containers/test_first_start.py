"""The commands of the compose file, started in its order, are a federation that decides rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cmfl.commands.conftest import succeeds
from tests.containers.composed import Composed, composed
from tests.containers.test_files import shown_metrics
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.processes import Forks
from tests.support.keys import write_keystore

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.slow]

DECIDED = 2
MOST_CHANGES = 60
"""Changes of the list of rounds to wait for: each opening, commitment and end is one."""
MAKES_KEYS, BRING_KEYS = "north", ("south", "east")
"""An owner whose keys the first start makes; those who have keys, which it leaves as they are."""
PASSWORD = "correct horse battery staple"
NAMES = ("one.json", "two.json")
_PAUSE_SECONDS = 0.25  # between two looks at the service, each of which costs it two answers


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    folder = tmp_path_factory.mktemp("composed")
    for number, owner in enumerate(BRING_KEYS):
        volume = folder / "volumes" / owner
        volume.mkdir(parents=True)
        (volume / "password").write_text(PASSWORD)
        for key, name in enumerate(NAMES):
            write_keystore(volume / name, bytes([2 * number + key + 1] * 32), PASSWORD)
    # A key at its usual cost is made and opened twice more at a second and a half each.
    cheap = Forks(tmp_path_factory.mktemp("forks"), "tests.processes:run_with_cheap_keys")
    with cheap as forks, composed(folder, forks) as running:
        with asking(running, 8000) as client:
            seen: list[dict[str, object]] = []

            def changed() -> list[dict[str, object]]:
                for name, process in running.processes.items():
                    assert process.poll() in {None, 0}, running.log(name)
                time.sleep(_PAUSE_SECONDS)
                listed = rounds_of(client)
                return [] if listed == seen else listed

            # On a slow machine early rounds end undecided, and each takes a minute.
            for _ in range(MOST_CHANGES):
                if len(decided(client)) >= DECIDED:
                    break
                seen = wait_until(changed, lambda: running.log("north"))
            assert len(decided(client)) >= DECIDED, running.log("north")
        yield running


def asking(running: Composed, port: int) -> httpx.Client:
    """Return a client of a service; no certificate is looked at here."""
    return httpx.Client(
        base_url=running.url(port), timeout=PATIENCE_SECONDS, verify=False, trust_env=False
    )


def rounds_of(client: httpx.Client) -> list[dict[str, object]]:
    (deployment,) = client.get("/v1/status").json()["deployments"]
    rounds = client.get(f"{deployment['links']['self']}/rounds").json()["rounds"]
    assert isinstance(rounds, list)
    return rounds


def decided(client: httpx.Client) -> list[dict[str, object]]:
    return [each for each in rounds_of(client) if each["status"] == "decided"]


def test_three_workers_decide_rounds_that_the_service_shows(federation: Composed) -> None:
    assert federation.processes.keys() >= {"north", "south", "east", "chain", "store", "service"}
    with asking(federation, 8000) as client:
        (deployment,) = client.get("/v1/status").json()["deployments"]
        assert deployment["run"] == "federation"
        page = client.get("/", follow_redirects=True)
        assert "text/html" in page.headers["content-type"]


def test_the_home_passes_an_audit(federation: Composed) -> None:
    audited = succeeds("audit", "--home", federation.volume("home"), "--jobs", 1, "--json").json
    assert audited["outcome"] == "passed"
    assert audited["rounds"] >= DECIDED


def test_doctor_and_runs_read_the_rounds_from_the_chain(federation: Composed) -> None:
    home = federation.volume("home")
    with asking(federation, 8000) as client:
        before = len(decided(client))
    (run,) = (
        row["found"]
        for row in succeeds("doctor", "--home", home, "--json").json
        if row["check"] == "run federation"
    )
    assert "its workers run it" in run
    (row,) = succeeds("runs", "list", "--home", home, "--json").json
    assert row["rounds"] >= before
    journals = succeeds("doctor", "--home", worker(federation), "--json").json
    assert any("worker: " in row["found"] for row in journals if row["check"] == "vote journals")


def worker(federation: Composed) -> Path:
    return federation.volume(MAKES_KEYS) / "worker"


def test_keys_were_made_in_their_owners_volumes_alone(federation: Composed) -> None:
    for name in (*NAMES, "password"):
        assert (federation.volume(MAKES_KEYS) / name).stat().st_mode & 0o077 == 0
    for owner in BRING_KEYS:
        assert (federation.volume(owner) / "password").read_text() == PASSWORD
    for shared in ("home", "shared"):
        folder = federation.volume(shared)
        assert not [*folder.rglob("*password*")]
        assert not [path for path in folder.rglob("*.json") if "crypto" in path.read_text("utf-8")]


def test_the_dashboard_shows_every_metric_of_a_worker(federation: Composed) -> None:
    with asking(federation, 9101) as client:
        text = client.get("/metrics").text
    families = text_string_to_metric_families(text)
    series = {sample.name for family in families for sample in family.samples}
    assert series == {name for name in shown_metrics() if name.startswith("cmfl_worker_")}
