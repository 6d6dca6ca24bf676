"""Provenance documents: the in-toto statement, the ML-BOM and the RO-Crate, as JSON.

RO-Crate 1.2; profiles Process Run Crate 0.5 and, as draft 0.1 of February 2026 has it, Federated
Learning RO-Crate, which extends it. https://esciencelab.org.uk/federated-learning-ro-crate-profile
"""

from __future__ import annotations

import json
import os
import re
import uuid
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from cmfl.provenance.facts import RepeatedUpdate, RunFacts, utc
from ledger.audit.proofs.documents import parse_document
from ledger.io.home import naming, read_file
from ledger.protocol.canonical import other_version
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Difference:
    """A field, such as `components[2].name`, that differs from what the run leads to.

    `recorded` and `derived` are the document's value and the run's as JSON, empty without one.
    `reason` is why a file or a signature is wrong, which has no value.
    """

    field: str
    recorded: str
    derived: str
    reason: str = ""

    @property
    def sentence(self) -> str:
        if self.reason:
            return f"{self.field} {self.reason}"
        if not self.recorded:
            return f"{self.field} is missing, and must be {self.derived}"
        rest = f"be {self.derived}" if self.derived else "not be there"
        return f"{self.field} is {self.recorded}, and must {rest}"

    def as_dict(self) -> dict[str, str | None]:
        recorded = self.recorded or self.reason or None
        return {"field": self.field, "recorded": recorded, "derived": self.derived or None}


def json_bytes(value: Any) -> bytes:
    """Return plain data as the bytes of a document."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


_ABSENT = object()  # the value of a field that one of two documents lacks


def differences(recorded: Any, derived: Any, field: str = "") -> Iterator[Difference]:
    """Yield the fields that differ between a document and the derived one; types count."""
    if type(recorded) is type(derived) and isinstance(derived, dict | list):
        theirs, own = (
            value if isinstance(value, dict) else dict(enumerate(value))
            for value in (recorded, derived)
        )
        for key in own | theirs:
            place = f"{field}[{key}]" if isinstance(key, int) else f"{field}.{key:.80}"
            found = theirs.get(key, _ABSENT), own.get(key, _ABSENT)
            yield from differences(*found, place.removeprefix("."))
    elif type(recorded) is not type(derived) or recorded != derived:
        yield Difference(field or "document", _shown(recorded), _shown(derived))


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return ""
    # A container may be too deep or too large to be written.
    if isinstance(value, dict | list):
        return "{...}" if isinstance(value, dict) else "[...]"
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


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


BOM_FORMAT = "CycloneDX"
SPECIFICATION = "1.6"
PREFIX = "cmfl:"


def mlbom(facts: RunFacts) -> dict[str, Any]:
    """Return the bill of materials of the model after a round, as plain data for JSON."""
    parts = list(_parts(facts))
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": BOM_FORMAT,
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, facts.identity)}",
        "version": 1,
        "metadata": {"timestamp": utc(facts.ended), "component": _model(facts)},
        "components": parts,
        "dependencies": [
            {"ref": "model", "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }


def properties(facts: RunFacts) -> dict[str, str]:
    """Return what every document states of the run as text by name."""

    def flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for key, item in value.items():
                yield from flat(f"{name}:{key}", item)
        else:
            is_text = isinstance(value, str)
            yield name, value if is_text else json.dumps(value, separators=(",", ":"))

    return dict(flat(PREFIX.removesuffix(":"), facts.run_block()))


def _model(facts: RunFacts) -> dict[str, Any]:
    name = str(facts.described("model").get("name", "model"))
    settings = {
        f"{PREFIX}settings:{section}": json.dumps(values, sort_keys=True)
        for section, values in facts.settings().items()
    }
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": name,
        "version": str(facts.round),
        "hashes": _sha256(sha256(facts.model_file).hex()),
        "modelCard": {
            "modelParameters": {"modelArchitecture": name, "datasets": [{"ref": "data"}]},
            "properties": _listed(settings),
        },
        "properties": _listed(properties(facts)),
    }


def _parts(facts: RunFacts) -> Iterator[dict[str, Any]]:
    data = str(facts.described("data").get("name", "data"))
    yield {
        "type": "data",
        "bom-ref": "data",
        "name": data,
        "data": [{"type": "dataset", "name": data}],
        "properties": _listed({f"{PREFIX}data_root": facts.document.data_root.hex()}),
    }
    for name, algorithm, digits in facts.bound_inputs():
        if algorithm == f"{PREFIX}data_root":
            continue
        is_model = name == "initial model" or algorithm == f"{PREFIX}path"
        kind = "machine-learning-model" if is_model else "file"
        is_hash = algorithm == "sha256"
        digest = (
            {"hashes": _sha256(digits)} if is_hash else {"properties": _listed({algorithm: digits})}
        )
        yield {"type": kind, "bom-ref": name, "name": name} | digest


def _sha256(digits: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digits}]


def _listed(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


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
        identifier=facts.identity,
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
            "The run records none. The person who publishes the model states it.",
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


MAX_BYTES = 16 << 20  # a document lists an attestation in about 120 bytes
MAX_NAMES = 1_000  # names in a folder that are looked at
_U32 = 1 << 32
_LISTED = {"round": int, "client": int, "auditor": str, "verdict": str}
PAYLOAD_TYPE = "application/vnd.in-toto+json"


class DocumentKind(StrEnum):
    """The kind of a document."""

    RUN = "statement"
    MLBOM = "ML-BOM"
    CRATE = "RO-Crate"
    MODEL = "signed model"

    def derive(self, facts: RunFacts) -> Any:
        if self is DocumentKind.RUN:
            return statement(facts)
        if self is DocumentKind.MLBOM:
            return mlbom(facts)
        return _parsed(crate_files(facts)[METADATA_FILE]) if self is DocumentKind.CRATE else {}


@dataclass(frozen=True, slots=True)
class ProvenanceDocument:
    """An unverified document, with the folder of a crate or model, and its DSSE envelope."""

    kind: DocumentKind
    value: dict[str, Any]
    folder: Path | None = None
    envelope: dict[str, Any] | None = field(default=None, repr=False)

    def claim(self, name: str) -> Any:
        """Return its value for a name of the run; None without a readable one."""
        if self.kind is DocumentKind.RUN:
            return _at(self.value, "predicate", name)
        return self._properties().get(f"{PREFIX}{name}")

    @property
    def is_signed(self) -> bool:
        return self.envelope is not None or self.kind is DocumentKind.MODEL

    @property
    def round(self) -> int | None:
        """The round that it is about; None where it names none that a run can have."""
        claimed = self.claim("round")
        if isinstance(claimed, str) and re.fullmatch("[1-9][0-9]{0,9}", claimed):
            claimed = int(claimed)
        return claimed if type(claimed) is int and 0 < claimed < _U32 else None

    def repeated(self) -> tuple[RepeatedUpdate, ...]:
        if self.kind is DocumentKind.RUN:
            listed = _at(self.value, "predicate", "training", "attestations")
        else:
            text = self.claim("training:attestations")
            try:
                listed = _parsed(text.encode()) if isinstance(text, str) else None
            except EncodingError:
                listed = None
        verdicts = {
            RepeatedUpdate(**row)
            for row in (listed if isinstance(listed, list) else [])
            if isinstance(row, dict)
            and row.keys() == _LISTED.keys()
            and all(type(row[name]) is kind for name, kind in _LISTED.items())
            and 0 < row["round"] < _U32
            and 0 <= row["client"] < _U32
        }
        return tuple(sorted(verdicts))

    def _properties(self) -> dict[str, Any]:
        """Return the properties of a bill of materials or a crate by name."""
        is_bom = self.kind is DocumentKind.MLBOM
        place = ("metadata", "component", "properties") if is_bom else ("@graph",)
        rows = _at(self.value, *place)
        return {
            row["name"]: row.get("value")
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, dict) and isinstance(row.get("name"), str)
        }


def read_document(path: Path) -> ProvenanceDocument:
    """Return the document in a file, or the crate or signed model in a folder."""
    folder = path if path.is_dir() else None
    if folder is not None and (folder / SIGNATURE_FILE).exists():
        return ProvenanceDocument(DocumentKind.MODEL, {}, folder)
    if path.name == METADATA_FILE:
        folder = path.parent
    file = path if folder is None else folder / METADATA_FILE
    try:
        with naming(file):
            value = _parsed(read_file(file, MAX_BYTES))
    except EncodingError as error:
        raise EncodingError(f"{file}: {error}") from error
    envelope = value if isinstance(value, dict) and "payloadType" in value else None
    if envelope is not None:
        value = _payload(file, envelope)
    kind = _kind(value)
    if kind is None or (kind is DocumentKind.CRATE) is not (folder is not None):
        raise EncodingError(
            f"{file}: must be an in-toto statement of this project, a CycloneDX bill of "
            f"materials, or a crate's {METADATA_FILE}"
        )
    document = ProvenanceDocument(kind, value, folder, envelope)
    version = document.claim("protocol")
    if version is not None and str(version) != str(PROTOCOL_VERSION):
        raise EncodingError(other_version(str(file), version))
    return document


def crate_differences(folder: Path, derived: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield the files of a crate that are not the run's; `differences` compares the metadata."""
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in islice(entries, MAX_NAMES)}
    for name in sorted(names.keys() - derived.keys()):
        yield name, "is not a file of the crate"
    for name, data in derived.items():
        entry = names.get(name)
        if entry is None:
            yield name, "is missing"
        elif not entry.is_file(follow_symlinks=False):
            yield name, "is not a plain file"
        elif name != METADATA_FILE and read_file(folder / name, len(data)) != data:
            yield name, "has other bytes"


def _kind(value: Any) -> DocumentKind | None:
    if not isinstance(value, dict):
        return None
    if value.get("_type") == STATEMENT:
        return DocumentKind.RUN if value.get("predicateType") == PREDICATE else None
    if value.get("bomFormat") == BOM_FORMAT:
        return DocumentKind.MLBOM
    return DocumentKind.CRATE if isinstance(value.get("@graph"), list) else None


def _payload(file: Path, envelope: dict[str, Any]) -> Any:
    payload = envelope.get("payload")
    if envelope.keys() != {"payload", "payloadType", "signatures"}:
        raise EncodingError(
            f"{file}: an envelope must have exactly payload, payloadType and signatures"
        )
    if envelope["payloadType"] != PAYLOAD_TYPE or not isinstance(payload, str):
        raise EncodingError(f"{file}: the envelope has no payload of type {PAYLOAD_TYPE}")
    try:
        return _parsed(b64decode(payload, validate=True))
    except EncodingError as error:
        raise EncodingError(f"{file}: the envelope's payload is invalid ({error})") from error
    except ValueError as error:
        raise EncodingError(f"{file}: the envelope's payload is not base64 ({error})") from error


def _parsed(data: bytes) -> Any:
    return parse_document(data, MAX_BYTES)


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
