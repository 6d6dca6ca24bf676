"""A page that is open while a run goes on shows what has come, and keeps its reader's place."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from api.settings import Settings
from clients.configuration.loading import load
from clients.runs.open_run import open_run
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.storage.blobs import FolderBlobs
from tests.api.conftest import deployments, read, serving
from tests.api.web.conftest import WAIT_MS, run_address, settled
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("web")


@contextmanager
def playing(home: Path) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Play a run of two rounds; tell when the first has ended, and wait for leave to go on."""
    first, leave = threading.Event(), threading.Event()

    def pause(_: object) -> None:
        first.set()
        leave.wait(PATIENCE_SECONDS)

    def play() -> None:
        with (
            EmbeddedChain.create(home / "chain.sqlite") as chain,
            open_run(
                home,
                "live",
                load("smoke", settings=("protocol.rounds=2",)),
                chain,
                FolderBlobs(home / "blobs"),
            ) as run,
        ):
            run.go_on(pause)

    home.mkdir()
    player = threading.Thread(target=play)
    player.start()
    try:
        yield first, leave
    finally:
        leave.set()
        player.join()


def test_a_page_follows_a_run_that_goes_on(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with playing(home) as (first, leave), serving(Settings(home=home)) as client:
        assert first.wait(PATIENCE_SECONDS)
        (deployment,) = deployments(client)
        root = str(deployment["links"]["self"])
        with browser.new_context(base_url=str(client.base_url)) as context:
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            page.goto(f"/dashboard/{run_address(root)}")
            settled(page)
            assert page.locator(".badge.stage-open").count() == 1
            page.locator("#more-updates summary").click()
            leave.set()
            page.wait_for_selector(".badge.stage-finished", timeout=1_000 * PATIENCE_SECONDS)
            assert read(client, root)["state"]["stage"] == "finished"
            rows = page.locator("#more-updates[open] tbody tr")
            assert [row.locator("td").first.inner_text() for row in rows.all()] == [
                "decided",
                "decided",
            ]
            assert "brought up to date" in page.locator("#said").inner_text()
