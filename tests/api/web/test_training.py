"""A run's page shows which updates auditors have repeated, and who of them disagree."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from api.settings import Settings
from ledger.protocol.encoding import checksum
from ledger.protocol.training_replay import ReplayVerdict
from ledger.protocol.types import Digest
from tests.api.conftest import deployments, read, serving
from tests.api.test_training import ONE, OTHER, Attested
from tests.api.web.conftest import run_address, settled, show
from tests.api.web.test_views import AXE, TOO_WIDE, VIOLATIONS, rows

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.xdist_group("web")


@pytest.fixture(scope="module")
def attested(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attested]:
    """A served copy of the shared home, to which auditors write."""
    copy = Path(shutil.copytree(home, tmp_path_factory.mktemp("training") / "home"))
    with serving(Settings(home=copy)) as client:
        root = deployments(client)[0]["links"]["self"]
        config = Digest(bytes.fromhex(read(client, root)["config"][2:]))
        yield Attested(copy, client, root, config)


@pytest.fixture(scope="module")
def client(attested: Attested) -> httpx.Client:
    """The service whose pages are shown here."""
    return attested.client


def test_auditors_who_disagree_are_shown_with_their_update(page: Page, attested: Attested) -> None:
    address = run_address(attested.root)
    show(page, address)
    assert "No auditor has attested" in page.inner_text("main")
    # The charts are drawn though this part of the page comes after them, and later.
    page.wait_for_function("document.querySelectorAll('figure canvas').length > 0")
    first, second = (each["client"] for each in attested.coverage()["updates"][:2])
    attested.attest(ONE, first, ReplayVerdict.SAME)
    attested.attest(ONE, second, ReplayVerdict.OTHER)
    attested.attest(OTHER, second, ReplayVerdict.SAME)
    page.reload()
    settled(page)
    (row,) = rows(page, "Updates that are other or disputed")
    assert row[:3] == ["1", str(second), "disputed"]
    one, other = (checksum(signer.address) for signer in (ONE, OTHER))
    assert row[3].startswith(other[:10])
    assert row[4].startswith(one[:10])
    assert page.get_by_role("link", name=str(second), exact=True).count()
    grid = {row[0]: row[1] for row in rows(page, "Repeated updates, by client and round")}
    assert grid[str(first)].startswith(f"same: {one[:10]}")
    assert "other: " in grid[str(second)]
    title = page.locator("svg.strip title", has_text="auditors disagree").text_content()
    assert title is not None
    assert f"same by {other}" in title
    assert f"other by {one}" in title
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.evaluate(AXE.read_text())
    assert page.evaluate(VIOLATIONS) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(VIOLATIONS, "color-contrast") == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(TOO_WIDE) <= 0
