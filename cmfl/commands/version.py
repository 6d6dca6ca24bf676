"""Versions of an installation, for `cmfl --version`."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files

from ledger.io.json import parse_json


def versions() -> dict[str, str]:
    """Return the versions, by name, that two installations need in common."""
    from ledger.protocol.encoding import PROTOCOL_VERSION

    artefact = files("contracts") / "artifacts" / "committee_ledger.json"
    compiler = parse_json(artefact.read_bytes())["compiler"]
    return {
        "cmfl": version("cmfl-ledger"),
        "protocol": str(PROTOCOL_VERSION),
        "contract compiler": str(compiler),
    }
