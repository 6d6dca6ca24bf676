"""The model of a run as an RO-Crate, by the profile for federated learning.

RO-Crate 1.2; profiles Process Run Crate 0.5 and, as draft 0.1 of February 2026 has it, Federated
Learning RO-Crate, which extends it. https://esciencelab.org.uk/federated-learning-ro-crate-profile
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cmfl.provenance.facts import utc
from cmfl.provenance.json_form import json_bytes
from cmfl.provenance.mlbom import properties
from cmfl.provenance.statement import MODEL_FILE, statement
from ledger.protocol.encoding import sha256
from ledger.protocol.types import PROTOCOL_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cmfl.provenance.facts import RunFacts

METADATA_FILE = "ro-crate-metadata.json"
STATEMENT_FILE = "attestation.json"
DOCUMENT_FILE = "run-document.msgpack"
SETTINGS_FILE = "settings.json"

_SPECIFICATION = "https://w3id.org/ro/crate/1.2"
_PROCESS = "https://w3id.org/ro/wfrun/process/0.5"
_LEARNING = (
    "https://esciencelab.org.uk/federated-learning-ro-crate-profile/federated-learning-profile.html"
)
_SAFETENSORS = "https://huggingface.co/docs/safetensors"


def crate_files(facts: RunFacts) -> dict[str, bytes]:
    """Return the files of the crate of a run by name."""
    files = {
        MODEL_FILE: facts.model_file,
        DOCUMENT_FILE: facts.document_bytes,
        SETTINGS_FILE: json_bytes(facts.settings()),
        STATEMENT_FILE: json_bytes(statement(facts)),
    }
    return {METADATA_FILE: json_bytes(_metadata(facts, files))} | files


def _metadata(facts: RunFacts, files: Mapping[str, bytes]) -> dict[str, Any]:
    values = {f"#{name}": (name, value) for name, value in properties(facts).items()}
    model: dict[str, Any] = {
        "name": f"Model after round {facts.round}",
        "description": "As cmfl model export writes it; its numbers have the digest on the chain.",
        "encodingFormat": ["application/octet-stream", _reference(_SAFETENSORS)],
        "additionalProperty": [_reference(each) for each in values],
        "subjectOf": _reference(STATEMENT_FILE),
    }
    described: dict[str, dict[str, Any]] = {
        MODEL_FILE: model,
        DOCUMENT_FILE: {
            "name": "Run document",
            "description": "The configuration whose sha256 the contract names.",
            "encodingFormat": "application/vnd.msgpack",
        },
        SETTINGS_FILE: {
            "name": "Settings",
            "description": "Those in the run document, for people to read.",
            "encodingFormat": "application/json",
        },
        STATEMENT_FILE: {
            "name": "Statement about the model",
            "description": "An in-toto statement: run, audit, and coverage of the training.",
            "encodingFormat": "application/vnd.in-toto+json",
        },
    }
    return {
        "@context": f"{_SPECIFICATION}/context",
        "@graph": [
            {
                "@id": METADATA_FILE,
                "@type": "CreativeWork",
                "about": _reference("./"),
                "conformsTo": _reference(_SPECIFICATION),
            },
            _root(facts, files),
            *(_file(name, files[name]) | description for name, description in described.items()),
            *_context(facts),
            *(
                {"@id": each, "@type": "PropertyValue", "name": name, "value": value}
                | {"propertyID": f"urn:cmfl-ledger:{name}"}
                for each, (name, value) in values.items()
            ),
        ],
    }


def _root(facts: RunFacts, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Federated learning run on {facts.account}",
        "description": (
            f"The model after round {facts.round} of a run whose contract records every decision, "
            f"and what it follows from."
        ),
        "datePublished": _time(facts.ended),
        "identifier": f"{facts.account}#{facts.head.hex()}",
        "license": _reference("#licence"),
        "conformsTo": [_reference(_PROCESS), _reference(_LEARNING)],
        "hasPart": [_reference(name) for name in (*files, _data_id(facts))],
        "mainEntity": _reference(MODEL_FILE),
        "mentions": _reference("#training"),
    }


def _context(facts: RunFacts) -> list[dict[str, Any]]:
    """Return the training, and what took part in it."""
    clients = len(facts.document.registry)
    return [
        {
            "@id": "#training",
            "@type": "CreateAction",
            "name": f"Rounds 1 to {facts.round} of federated learning",
            "description": f"{facts.decided} rounds were decided by their committees.",
            "startTime": _time(facts.started),
            "endTime": _time(facts.ended),
            "actionStatus": "http://schema.org/CompletedActionStatus",
            "agent": _reference("#clients"),
            "instrument": _reference(facts.account),
            "object": [
                _reference(each) for each in (_data_id(facts), DOCUMENT_FILE, SETTINGS_FILE)
            ],
            "result": [_reference(MODEL_FILE), _reference(STATEMENT_FILE)],
        },
        {"@id": "#clients", "@type": "Organization", "name": f"{clients} registered clients"},
        {
            "@id": facts.account,
            "@type": "SoftwareApplication",
            "name": "CMFL ledger, the contract of the run",
            "version": f"protocol {PROTOCOL_VERSION}",
            "url": facts.account,
            "sha256": facts.code.hex(),
        },
        {
            "@id": _data_id(facts),
            "@type": "Dataset",
            "name": f"Training samples of the clients: {facts.described('data').get('name')}",
            "description": "They stay with their owners; the run document binds them by a digest.",
        },
        {"@id": _SAFETENSORS, "@type": "WebPage", "name": "safetensors: tensors by name"},
        {
            "@id": "#licence",
            "@type": "CreativeWork",
            "name": "No licence is recorded",
            "description": "The run records none: whoever passes the model on states it.",
        },
        _profile(_PROCESS, "Process Run Crate", "0.5"),
        _profile(_LEARNING, "Federated Learning RO-Crate Profile", "0.1"),
    ]


def _time(seconds: int) -> str:
    # The profile's checks know an offset, and no Z.
    return utc(seconds).replace("Z", "+00:00")


def _data_id(facts: RunFacts) -> str:
    return f"urn:cmfl-ledger:data-root:{facts.document.data_root.hex()}"


def _file(name: str, data: bytes) -> dict[str, Any]:
    size = {"contentSize": str(len(data)), "sha256": sha256(data).hex()}
    return {"@id": name, "@type": "File"} | size


def _profile(uri: str, name: str, version: str) -> dict[str, Any]:
    return {"@id": uri, "@type": ["CreativeWork", "Profile"], "name": name, "version": version}


def _reference(uri: str) -> dict[str, str]:
    return {"@id": uri}
