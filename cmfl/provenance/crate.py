"""The model of a run as an RO-Crate, by the profile for federated learning.

RO-Crate 1.2; profiles Process Run Crate 0.5 and, as draft 0.1 of February 2026 has it, Federated
Learning RO-Crate, which extends it. https://esciencelab.org.uk/federated-learning-ro-crate-profile
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmfl.provenance.facts import RunFacts, utc
from cmfl.provenance.json_form import json_bytes
from cmfl.provenance.mlbom import properties
from cmfl.provenance.statement import MODEL_FILE, statement
from ledger.protocol.encoding import sha256
from ledger.protocol.types import PROTOCOL_VERSION

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
    model = {
        "additionalProperty": [_reference(each) for each in values],
        "subjectOf": _reference(STATEMENT_FILE),
    }
    tensors = ["application/octet-stream", _reference(_SAFETENSORS)]
    described: dict[str, tuple[str, str, Any]] = {
        MODEL_FILE: (
            f"Model after round {facts.round}",
            "As cmfl model export writes it; its numbers have the digest on the chain.",
            tensors,
        ),
        DOCUMENT_FILE: (
            "Run document",
            "The configuration whose sha256 the contract names.",
            "application/vnd.msgpack",
        ),
        SETTINGS_FILE: (
            "Settings",
            "Those in the run document, for people to read.",
            "application/json",
        ),
        STATEMENT_FILE: (
            "Statement about the model",
            "An in-toto statement: run, audit, and coverage of the training.",
            "application/vnd.in-toto+json",
        ),
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
            *(
                {"@id": name, "@type": "File", "contentSize": str(len(files[name]))}
                | {"sha256": sha256(files[name]).hex(), "name": title, "description": description}
                | {"encodingFormat": form, **(model if name == MODEL_FILE else {})}
                for name, (title, description, form) in described.items()
            ),
            *_context(facts),
            *(
                _entity(each, "PropertyValue", name, value=value)
                | {"propertyID": f"urn:cmfl-ledger:{name}"}
                for each, (name, value) in values.items()
            ),
        ],
    }


def _root(facts: RunFacts, files: Mapping[str, bytes]) -> dict[str, Any]:
    return _entity(
        *("./", "Dataset", f"Federated learning run on {facts.account}"),
        f"The model after round {facts.round} of a run whose contract records every decision, and "
        f"what it follows from.",
        datePublished=_time(facts.ended),
        identifier=f"{facts.account}#{facts.head.hex()}",
        license=_reference("#licence"),
        conformsTo=[_reference(_PROCESS), _reference(_LEARNING)],
        hasPart=[_reference(name) for name in (*files, _data_id(facts))],
        mainEntity=_reference(MODEL_FILE),
        mentions=_reference("#training"),
    )


def _context(facts: RunFacts) -> list[dict[str, Any]]:
    profile = ["CreativeWork", "Profile"]
    return [
        _entity(
            *("#training", "CreateAction", f"Rounds 1 to {facts.round} of federated learning"),
            f"{facts.decided} rounds were decided by their committees.",
            startTime=_time(facts.started),
            endTime=_time(facts.ended),
            actionStatus="http://schema.org/CompletedActionStatus",
            agent=_reference("#clients"),
            instrument=_reference(facts.account),
            object=[_reference(each) for each in (_data_id(facts), DOCUMENT_FILE, SETTINGS_FILE)],
            result=[_reference(MODEL_FILE), _reference(STATEMENT_FILE)],
        ),
        _entity("#clients", "Organization", f"{len(facts.document.registry)} registered clients"),
        _entity(
            *(facts.account, "SoftwareApplication", "CMFL ledger, the contract of the run"),
            version=f"protocol {PROTOCOL_VERSION}",
            url=facts.account,
            sha256=facts.code.hex(),
        ),
        _entity(
            *(_data_id(facts), "Dataset"),
            f"Training samples of the clients: {facts.described('data').get('name')}",
            "They stay with their owners; the run document binds them by a digest.",
        ),
        _entity(_SAFETENSORS, "WebPage", "safetensors: tensors by name"),
        _entity(
            *("#licence", "CreativeWork", "No licence is recorded"),
            "The run records none: whoever passes the model on states it.",
        ),
        _entity(_PROCESS, profile, "Process Run Crate", version="0.5"),
        _entity(_LEARNING, profile, "Federated Learning RO-Crate Profile", version="0.1"),
    ]


def _time(seconds: int) -> str:
    # The profile's checks know an offset, and no Z.
    return utc(seconds).replace("Z", "+00:00")


def _data_id(facts: RunFacts) -> str:
    return f"urn:cmfl-ledger:data-root:{facts.document.data_root.hex()}"


def _entity(uri: str, kind: Any, name: str, description: str = "", **more: Any) -> dict[str, Any]:
    about = {"description": description} if description else {}
    return {"@id": uri, "@type": kind, "name": name, **about, **more}


def _reference(uri: str) -> dict[str, str]:
    return {"@id": uri}
