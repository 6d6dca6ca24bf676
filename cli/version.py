"""What `cmfl --version` says of an installation."""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files

from ledger.io.json import parse_json


def versions() -> dict[str, str]:
    """Return what two installations have to have in common to understand each other, by name."""
    from ledger.protocol.encoding import PROTOCOL_VERSION

    artefact = files("contracts") / "artifacts" / "committee_ledger.json"
    compiler = parse_json(artefact.read_bytes())["compiler"]
    return {
        "cmfl": version("cmfl-ledger"),
        "protocol": str(PROTOCOL_VERSION),
        "contract compiler": str(compiler),
    }
