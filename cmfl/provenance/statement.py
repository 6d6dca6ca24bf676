"""In-toto statements about the model of a run: our own predicate, and SLSA's provenance."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cmfl.provenance.facts import utc
from ledger.protocol.encoding import sha256
from ledger.protocol.types import PROTOCOL_VERSION

if TYPE_CHECKING:
    from cmfl.provenance.facts import RunFacts

STATEMENT = "https://in-toto.io/Statement/v1"
MODEL_FILE = "model.safetensors"


class Predicate(StrEnum):
    """The kind of a statement, by its name on the command line."""

    RUN = "run"
    SLSA = "slsa"

    @property
    def uri(self) -> str:
        """The predicate type in the statement."""
        return _URIS[self]


_URIS = {
    Predicate.RUN: "urn:cmfl-ledger:run:v1",
    Predicate.SLSA: "https://slsa.dev/provenance/v1",
}


def statement(facts: RunFacts, predicate: Predicate) -> dict[str, Any]:
    """Return a statement about the model after a round, as plain data for JSON."""
    content = facts.run_block() if predicate is Predicate.RUN else _slsa(facts)
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": MODEL_FILE, "digest": {"sha256": sha256(facts.model_file).hex()}},
            {"name": "model blob", "digest": {"sha256": facts.model.hex()}},
        ],
        "predicateType": predicate.uri,
        "predicate": content,
    }


def _slsa(facts: RunFacts) -> dict[str, Any]:
    block = facts.run_block()
    byproducts = [
        {"name": name, "uri": f"urn:cmfl-ledger:{name}", "annotations": block.pop(name)}
        for name in ("audit", "training")
    ]
    return {
        "buildDefinition": {
            "buildType": f"urn:cmfl-ledger:protocol:{PROTOCOL_VERSION}",
            "externalParameters": facts.settings(),
            "internalParameters": block,
            "resolvedDependencies": [
                {"name": name, "digest": {algorithm: digest}}
                for name, algorithm, digest in facts.bound_inputs()
            ],
        },
        "runDetails": {
            "builder": {"id": facts.account},
            "metadata": {
                "invocationId": f"{facts.account}#{facts.round}",
                "startedOn": utc(facts.started),
                "finishedOn": utc(facts.ended),
            },
            "byproducts": byproducts,
        },
    }
