"""Provenance documents as files: their kinds, how they are read, and what they claim."""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from cmfl.provenance.crate import METADATA_FILE, crate_files
from cmfl.provenance.facts import RepeatedUpdate, RunFacts
from cmfl.provenance.mlbom import ATTESTATIONS, BOM_FORMAT, PREFIX, mlbom
from cmfl.provenance.statement import PREDICATE, SIGNATURE_FILE, STATEMENT, statement
from ledger.audit.proofs.json_documents import parse_document
from ledger.io.home import read_file
from ledger.protocol.documents.fields import other_version
from ledger.protocol.errors import ConfigurationError, EncodingError
from ledger.protocol.types import PROTOCOL_VERSION

MAX_BYTES = 16 << 20
"""A document lists an attestation in about 120 bytes."""

MAX_NAMES = 1_000
"""Names in a folder that are looked at."""

_ENVELOPE = {"payload", "payloadType", "signatures"}
_U32 = 1 << 32
_ROUND = re.compile("[1-9][0-9]{0,9}")
_LISTED = {"round": int, "client": int, "auditor": str, "verdict": str}

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class DocumentKind(StrEnum):
    """The kind of a document."""

    RUN = "statement"
    MLBOM = "ML-BOM"
    CRATE = "RO-Crate"
    MODEL = "signed model"

    def derive(self, facts: RunFacts) -> Any:
        """Return the document of this kind that a run leads to."""
        match self:
            case DocumentKind.RUN:
                return statement(facts)
            case DocumentKind.MLBOM:
                return mlbom(facts)
            case DocumentKind.CRATE:
                return _parsed(crate_files(facts)[METADATA_FILE])
            case DocumentKind.MODEL:
                return {}


@dataclass(frozen=True, slots=True)
class ProvenanceDocument:
    """A document that somebody sent, none of it verified.

    Attributes:
        folder: of a crate or a model, with all its files; None of the other kinds.
        envelope: the DSSE envelope around it; None without one.
    """

    kind: DocumentKind
    value: dict[str, Any]
    folder: Path | None = None
    envelope: dict[str, Any] | None = field(default=None, repr=False)

    def claim(self, name: str) -> Any:
        """Return what it says of the run under a name; None where it says nothing readable."""
        match self.kind:
            case DocumentKind.RUN:
                return _at(self.value, "predicate", name)
            case DocumentKind.MLBOM | DocumentKind.CRATE:
                return self._properties().get(f"{PREFIX}{name}")
            case DocumentKind.MODEL:
                return None

    @property
    def is_signed(self) -> bool:
        """True if it comes with a signature, of whomever."""
        return self.envelope is not None or self.kind is DocumentKind.MODEL

    @property
    def round(self) -> int | None:
        """The round that it is about; None where it names none that a run can have."""
        claimed = self.claim("round")
        if isinstance(claimed, str) and _ROUND.fullmatch(claimed):
            claimed = int(claimed)
        return claimed if type(claimed) is int and 0 < claimed < _U32 else None

    def repeated(self) -> tuple[RepeatedUpdate, ...]:
        """Return the verdicts of auditors that it lists; those that are unreadable left out."""
        listed = self._listed()
        rows = listed if isinstance(listed, list) else []
        verdicts = {
            RepeatedUpdate(**row)
            for row in rows
            if isinstance(row, dict)
            and row.keys() == _LISTED.keys()
            and all(type(row[name]) is kind for name, kind in _LISTED.items())
            and 0 < row["round"] < _U32
            and 0 <= row["client"] < _U32
        }
        return tuple(sorted(verdicts))

    def _listed(self) -> Any:
        if self.kind is DocumentKind.RUN:
            return _at(self.value, "predicate", "training", "attestations")
        text = self._properties().get(ATTESTATIONS)
        try:
            return _parsed(text.encode()) if isinstance(text, str) else None
        except EncodingError:
            return None

    def _properties(self) -> dict[str, Any]:
        """Return the properties of a bill of materials or a crate by name."""
        rows: Any = None
        if self.kind is DocumentKind.MLBOM:
            rows = _at(self.value, "metadata", "component", "properties")
        else:
            rows = self.value.get("@graph")
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
        value = _parsed(read_file(file, MAX_BYTES))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except EncodingError as error:
        raise EncodingError(f"{file}: {error}") from error
    envelope = value if isinstance(value, dict) and "payloadType" in value else None
    if envelope is not None:
        value = _payload(file, envelope)
    kind = _kind(value)
    if kind is None or (kind is DocumentKind.CRATE) is not (folder is not None):
        raise EncodingError(
            f"{file}: it is no in-toto statement of this project, no CycloneDX bill of materials, "
            f"and no {METADATA_FILE} of a crate"
        )
    document = ProvenanceDocument(kind, value, folder, envelope)
    version = document.claim("protocol")
    if version is not None and str(version) != str(PROTOCOL_VERSION):
        raise EncodingError(other_version(str(file), version))
    return document


def crate_differences(folder: Path, derived: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield the files of a crate that are not the run's, each with a reason.

    Of the metadata file only what it is counts: its fields are compared one by one.
    """
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in islice(entries, MAX_NAMES)}
    for name in sorted(names.keys() - derived.keys()):
        yield name, "is no file of the crate"
    for name, data in derived.items():
        entry = names.get(name)
        if entry is None:
            yield name, "is missing"
        elif not entry.is_file(follow_symlinks=False):
            yield name, "is no plain file"
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
    """Return the JSON within a DSSE envelope."""
    payload = envelope.get("payload")
    if envelope.keys() != _ENVELOPE:
        raise EncodingError(f"{file}: an envelope has {', '.join(sorted(_ENVELOPE))}, and no more")
    if envelope["payloadType"] != PAYLOAD_TYPE or not isinstance(payload, str):
        raise EncodingError(f"{file}: the envelope has no payload of type {PAYLOAD_TYPE}")
    try:
        data = b64decode(payload, validate=True)
    except ValueError as error:
        raise EncodingError(f"{file}: the envelope's payload is no base64: {error}") from error
    try:
        return _parsed(data)
    except EncodingError as error:
        raise EncodingError(f"{file}: the envelope's payload: {error}") from error


def _parsed(data: bytes) -> Any:
    return parse_document(data, MAX_BYTES)


def _at(value: Any, *names: str) -> Any:
    """Return a member of nested maps; None where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
