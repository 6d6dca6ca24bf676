"""In-toto statements about the model of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.protocol.encoding import sha256

if TYPE_CHECKING:
    from cmfl.provenance.facts import RunFacts

PREDICATE = "urn:cmfl-ledger:run:v1"
STATEMENT = "https://in-toto.io/Statement/v1"
MODEL_FILE = "model.safetensors"
SIGNATURE_FILE = "model.sig"


def statement(facts: RunFacts) -> dict[str, Any]:
    """Return a statement about the model after a round, as plain data for JSON."""
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": MODEL_FILE, "digest": {"sha256": sha256(facts.model_file).hex()}},
            {"name": "model blob", "digest": {"sha256": facts.model.hex()}},
        ],
        "predicateType": PREDICATE,
        "predicate": facts.run_block(),
    }
