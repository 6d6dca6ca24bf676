"""A run in a home, as trackers describe it: from its own files alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cmfl.tracking.tracker import TrackedRow, TrackedRun, tracked_row
from ledger.chain.contract.manifest import read_run_manifest
from ledger.claims import recorded_settings, whole_rows
from ledger.io.home import Home
from ledger.protocol.encoding import sha256

if TYPE_CHECKING:
    from pathlib import Path

    from clients.configuration.schema import TrackSection

NOT_AUDITED = "not audited"
_PREFIX = "cmfl."


def described_run(home: Path, name: str, section: TrackSection) -> TrackedRun:
    """Return what trackers are told of a run.

    A run on the memory ledger has no contract: its key follows from its place.

    Raises:
        CmflError: a file of the run is damaged.
    """
    paths = Home(home).run(name)
    settings = recorded_settings(paths)
    parameters = {
        key: _plain(text) for key, text in settings.items() if not key.startswith("track.")
    }
    link = section.link or str(home.absolute())
    tags = {"run": name, "link": link}
    identity = f"memory {paths.path.absolute()}"
    if paths.manifest.exists():
        manifest = read_run_manifest(paths)
        # Chains of equal simulations and restarted chains have equal ids and addresses.
        identity = f"{manifest.genesis_hash} {manifest.address} {manifest.salt}"
        tags |= {
            "contract": manifest.address,
            "chain_id": str(manifest.chain_id),
            "run_document": manifest.config,
        }
    return TrackedRun(name, sha256(identity.encode()).hex()[:16], parameters, prefixed(tags))


def recorded_rows(home: Path, name: str) -> list[TrackedRow]:
    """Return all rows of a run; none of one that was not played here.

    Raises:
        EncodingError: a line is no row.
        OSError: the file cannot be read.
    """
    return [tracked_row(values) for _, values in whole_rows(Home(home).run(name))]


def prefixed(tags: dict[str, str]) -> dict[str, str]:
    """Return tags under names that no other tool uses."""
    return {f"{_PREFIX}{key}": value for key, value in tags.items()}


def _plain(text: str) -> str:
    value = json.loads(text)
    return value if isinstance(value, str) else text
