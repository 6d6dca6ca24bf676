"""Verification of a provenance document: its signatures, and every field derived again.

A statement is signed in a DSSE envelope, a folder in a sigstore bundle over all of its files
(OpenSSF Model Signing). A signature shows who vouches for a document.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clients.datasets.files.tables import imported
from clients.models.model import RECORDED_FILE, digest_at, files_in
from cmfl.provenance.documents import (
    MODEL_FILE,
    SIGNATURE_FILE,
    Difference,
    DocumentKind,
    ProvenanceDocument,
    crate_differences,
    crate_files,
    differences,
    json_bytes,
)
from cmfl.provenance.facts import PASSED, RoundNotEndedError, RunFacts, read_facts
from cmfl.where import Target
from ledger.audit.proofs.documents import parse_document
from ledger.audit.report import AuditOutcome, AuditReport
from ledger.io.home import naming, read_file
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import sha256, to_hex
from ledger.protocol.errors import (
    BlobError,
    ChainError,
    CmflError,
    ConfigurationError,
    EncodingError,
)
from ledger.protocol.rules.distance import Layout
from ledger.protocol.types import Digest


class ProvenanceState(StrEnum):
    """The result of a verification; unconfirmed: not false, but something could not be derived."""

    CURRENT = "current"
    STALE = "stale"
    FOREIGN = "foreign"
    FALSE = "false"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True)
class DocumentVerification:
    """The result of a verification, with notes in sentences; `round` is None if none is named."""

    kind: DocumentKind
    state: ProvenanceState
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    round: int | None

    @property
    def outcome(self) -> AuditOutcome:
        if self.state is ProvenanceState.UNCONFIRMED:
            return AuditOutcome.INCOMPLETE
        is_false = self.state in {ProvenanceState.FOREIGN, ProvenanceState.FALSE}
        return AuditOutcome.FAILED if is_false else AuditOutcome.PASSED

    @property
    def sentence(self) -> str:
        after = "" if self.round is None else f" after round {self.round}"
        text = {
            "current": f"every field matches the run{after}",
            "stale": f"every field matches the run{after}, but the run has continued",
            "foreign": "it is about another contract or chain",
            "false": "it does not match the run",
            "unconfirmed": "not every field could be derived",
        }
        return f"{str(self.outcome).upper()}, {self.state}: {self.kind}: {text[self.state]}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "outcome": str(self.outcome),
            "state": str(self.state),
            "kind": str(self.kind),
            "round": self.round,
            "differences": [each.as_dict() for each in self.differences],
            "notes": list(self.notes),
            "sentence": self.sentence,
        }


def verify_document(
    document: ProvenanceDocument,
    target: Target,
    audit: Callable[[], AuditReport],
    mailbox: str | None = None,
    public_key: Path | None = None,
) -> DocumentVerification:
    """Return whether a document is what a run leads to; no signature is checked without a key."""
    if foreign := list(_identity_differences(document, target)):
        return _result(document, ProvenanceState.FOREIGN, foreign)
    violation = signature_violation(document, public_key)
    report = audit()
    failures = [
        step.contradiction.sentence for step in report.steps if step.contradiction is not None
    ]
    try:
        facts = _facts(document, target, report, mailbox)
    except (RoundNotEndedError, ChainError, BlobError) as error:
        if isinstance(error, ChainError) and report.outcome is AuditOutcome.PASSED:
            raise
        # A node may lag behind; a chain file may not.
        is_cut_off = isinstance(error, RoundNotEndedError) and target.rpc_url is None
        is_false = is_cut_off or bool(failures)
        state = ProvenanceState.FALSE if is_false else ProvenanceState.UNCONFIRMED
        return _result(document, state, [], [str(error), *failures])
    wrong = list(_differences(document, replace(facts, repeated=document.repeated())))
    if violation is not None:
        wrong.append(Difference("signature", "", "of the named key", violation))
    known_before = [each.sentence for each in (report.kept, report.witnessed) if each is not None]
    notes = [*failures, *known_before, *_attestation_notes(document, facts)]
    if failures or wrong:
        return _result(document, ProvenanceState.FALSE, wrong, notes, facts.round)
    lacks = [each.sentence for step in report.steps for each in step.missing[:1]]
    if document.is_signed and public_key is None:
        lacks.append("the signature was not checked; give the public key with --key")
    if facts.round > report.rounds:
        lacks.append(f"round {facts.round} has ended since the audit began; verify again")
    is_whole = not lacks and report.outcome is AuditOutcome.PASSED
    if not is_whole or set(document.repeated()) - set(facts.repeated):
        return _result(document, ProvenanceState.UNCONFIRMED, [], [*notes, *lacks], facts.round)
    if facts.round < facts.newest:
        notes.insert(0, f"the newest round that has ended is {facts.newest}")
        return _result(document, ProvenanceState.STALE, [], notes, facts.round)
    return _result(document, ProvenanceState.CURRENT, [], notes, facts.round)


def _result(
    document: ProvenanceDocument,
    state: ProvenanceState,
    wrong: list[Difference],
    notes: list[str] | None = None,
    number: int | None = None,
) -> DocumentVerification:
    first = tuple(sorted(wrong, key=lambda each: each.field)[:50])
    about = document.round if number is None else number
    return DocumentVerification(document.kind, state, first, tuple(notes or ()), about)


def signature_violation(document: ProvenanceDocument, public_key: Path | None) -> str | None:
    """Return why a document is not signed by a key; None if it is, or no key is named."""
    if public_key is None:
        return None
    require_key(public_key, "public")
    try:
        if document.kind is DocumentKind.MODEL:
            assert document.folder is not None
            require_signed_folder(document.folder, public_key)
        elif document.envelope is not None:
            require_signed_envelope(document.envelope, public_key)
        else:
            return "is missing"
    except SignatureMismatchError as error:
        return f"does not hold: {error}"
    return None


def _identity_differences(document: ProvenanceDocument, target: Target) -> Iterator[Difference]:
    with target.reader() as chain:
        genesis = to_hex(chain.genesis_hash)
        identity = (str(chain.chain_id), genesis, target.ledger(chain).address)
    for name, value in zip(("chain", "genesis", "contract"), identity, strict=True):
        claimed = document.claim(name)
        # A field that is missing is named with all others.
        yield from differences(value if claimed is None else claimed, value, name)


def _facts(
    document: ProvenanceDocument, target: Target, report: AuditReport, mailbox: str | None
) -> RunFacts:
    # What could not be checked is no field of a document: none is written then.
    is_failed = report.outcome is AuditOutcome.FAILED
    outcomes = {step.number: step.outcome for step in report.steps} if is_failed else PASSED
    anchor = document.claim("head")
    if document.kind is DocumentKind.MODEL:
        assert document.folder is not None
        anchor = anchor_of(document.folder, read_facts(target, mailbox=mailbox).document.layout)
    return read_facts(
        target,
        document.round,
        anchor=anchor if isinstance(anchor, str) else None,
        audit=outcomes,
        mailbox=mailbox,
    )


def _differences(document: ProvenanceDocument, facts: RunFacts) -> Iterator[Difference]:
    yield from differences(document.value, document.kind.derive(facts))
    if document.folder is None:
        return
    if document.kind is DocumentKind.MODEL:
        files = folder_differences(document.folder, facts)
    else:
        files = crate_differences(document.folder, crate_files(facts))
    for name, reason in files:
        yield Difference(name, "", "the run's", reason)


def _attestation_notes(document: ProvenanceDocument, facts: RunFacts) -> Iterator[str]:
    listed, there = set(document.repeated()), set(facts.repeated)
    if missing := sorted(listed - there):
        first = missing[0]
        yield (
            f"training: {len(missing)} attestations that it lists are not in the mailbox, the "
            f"first by {first.auditor:.42} of client {first.client} in round {first.round}"
        )
    if others := there - listed:
        verdicts = [each.verdict for each in others]
        yield (
            f"training: the mailbox has {len(others)} attestations that it does not list: "
            f"{verdicts.count('same')} same, {verdicts.count('other')} other"
        )


MAX_BYTES = 16 << 20  # a signature names each file of a folder in some 150 bytes
CURVES = {"secp256r1", "secp384r1", "secp521r1"}
_MAX_KEY_BYTES = 1 << 16
_EXTRA = "provenance"


class SignatureMismatchError(CmflError):
    """A signature does not fit the key and the files."""


def sign_folder(folder: Path, private_key: Path) -> None:
    """Write `model.sig` over all other files of a folder, even git's."""
    imported("model_signing", _EXTRA, "signed models")
    from model_signing import hashing, signing

    hashed = hashing.Config().set_ignored_paths(paths=[SIGNATURE_FILE], ignore_git_paths=False)
    config = signing.Config().use_elliptic_key_signer(private_key=private_key)
    try:
        config.set_hashing_config(hashed).sign(folder, folder / SIGNATURE_FILE)
    except ValueError as error:
        raise ConfigurationError(f"{folder} cannot be signed: {error!s:.300}") from error


def require_signed_folder(folder: Path, public_key: Path) -> None:
    """Accept a folder if a key has signed all of its files."""
    imported("model_signing", _EXTRA, "signed models")
    from cryptography.exceptions import InvalidSignature
    from model_signing import hashing, verifying

    signature = folder / SIGNATURE_FILE
    hashed = hashing.Config().set_ignored_paths(paths=[SIGNATURE_FILE], ignore_git_paths=False)
    config = verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    try:
        # The library would read it without bound.
        parse_document(read_file(signature, MAX_BYTES), MAX_BYTES)
        config.set_hashing_config(hashed).verify(folder, signature)
    except InvalidSignature as error:
        raise SignatureMismatchError("the signature does not match the key") from error
    except (EncodingError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise SignatureMismatchError(f"{error!s:.500}") from error


def signed_envelope(payload: bytes, payload_type: str, private_key: Path) -> dict[str, Any]:
    """Return a DSSE envelope around a payload, as plain data for JSON."""
    imported("securesystemslib", _EXTRA, "signed statements")
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    envelope = Envelope(payload, payload_type, {})
    envelope.sign(CryptoSigner(require_key(private_key, "private")))
    return dict(envelope.to_dict())


def require_signed_envelope(envelope: dict[str, Any], public_key: Path) -> None:
    """Accept an envelope that a key has signed."""
    imported("securesystemslib", _EXTRA, "signed statements")
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import FormatError, VerificationError
    from securesystemslib.signer import SSlibKey

    key = SSlibKey.from_crypto(require_key(public_key, "public"))
    signatures = envelope.get("signatures")
    try:
        # The library changes what it reads.
        copies = [dict(each) for each in signatures] if isinstance(signatures, list) else []
        if any(each.keys() != {"keyid", "sig"} for each in copies):
            raise SignatureMismatchError("a signature must have exactly keyid and sig")
        Envelope.from_dict(envelope | {"signatures": copies}).verify([key], 1)
    except (VerificationError, FormatError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise SignatureMismatchError("no signature in the envelope matches the key") from e


def require_key(path: Path, kind: Literal["private", "public"]) -> Any:
    """Return the key in a PEM file."""
    module = "cryptography.hazmat.primitives.serialization"
    serialization = imported(module, _EXTRA, "keys of signatures")
    password = (None,) if kind == "private" else ()
    with naming(path):
        data = read_file(path, _MAX_KEY_BYTES)
    try:
        key = getattr(serialization, f"load_pem_{kind}_key")(data, *password)
    except TypeError as error:
        raise ConfigurationError(f"{path}: the key is encrypted; give it in plain PEM") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: is not a PEM key of the required kind") from error
    curve = getattr(getattr(key, "curve", None), "name", "no curve")
    if curve not in CURVES:
        raise ConfigurationError(f"{path}: the key is on {curve}; must be one of {sorted(CURVES)}")
    return key


BASE_FOLDER = "base"
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_SETTINGS = "adapter_config.json"
BASE_OPTION = "path"  # option of the model hf that names its base
_MAX_SETTINGS_BYTES = 1 << 20


def copy_base(base: Path, folder: Path, bound: str) -> None:
    """Copy a base's files, following links, into a model's folder; `bound` is its hex digest."""
    copied = folder / BASE_FOLDER
    # The run's own configuration names the base, so that its links may lead elsewhere.
    for name in files_in(BASE_OPTION, base):
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(base / name, copied / name)
    here = digest_at(BASE_OPTION, copied)
    if here != bound:
        raise ConfigurationError(f"{base}: the base's digest is {here}; the run needs {bound}")
    settings = folder / ADAPTER_SETTINGS
    if settings.exists():
        named = _settings_of(settings) | {"base_model_name_or_path": BASE_FOLDER}
        settings.write_bytes(json_bytes(named))
        # peft's model card is a form to fill in, and names the base by its path here.
        (folder / "README.md").unlink(missing_ok=True)


def anchor_of(folder: Path, layout: Layout) -> str | None:
    """Return the head that a model's file names, or the digest of its numbers; None for neither."""
    from clients.models.model_file import read_model_file

    if not (folder / MODEL_FILE).exists():
        digest = model_digest(folder, layout)
        return None if digest is None else to_hex(digest)
    try:
        return read_model_file(folder / MODEL_FILE).facts.get("head")
    except (EncodingError, OSError):
        return None


def model_digest(folder: Path, layout: Layout) -> Digest | None:
    """Return the digest of adapters as the ledger has it; None if they are of no such model."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    from clients.models.model_file import MAX_MODEL_BYTES

    # peft leaves out what the run's layout has: the prefix, and the adapter's name.
    names = [
        name.removeprefix("model.").replace(".modules_to_save.default", "").replace(".default", "")
        for name, _ in layout
    ]
    shapes = [shape for _, shape in layout]
    try:
        tensors = load(read_file(folder / ADAPTER_FILE, MAX_MODEL_BYTES))
    except (OSError, SafetensorError, ValueError, TypeError, KeyError):
        return None
    if tensors.keys() != set(names):
        return None
    parts = [tensors[name] for name in names]
    if any(part.dtype != np.float32 for part in parts) or [p.shape for p in parts] != shapes:
        return None
    return sha256(b"".join(part.tobytes() for part in parts))


def folder_differences(folder: Path, facts: RunFacts) -> Iterator[tuple[str, str]]:
    """Yield the files of a signed folder that are not the run's, each with a reason."""
    has_adapters = (folder / ADAPTER_FILE).exists()
    files = {ADAPTER_FILE, ADAPTER_SETTINGS} if has_adapters else {MODEL_FILE}
    expected = {SIGNATURE_FILE} | files
    bound, base = bound_base(facts.document), folder / BASE_FOLDER
    if bound is not None:
        expected.add(BASE_FOLDER)
        try:
            here = digest_at(BASE_OPTION, base) if base.is_dir() else "of nothing"
        except ConfigurationError as error:
            here = str(error)
        if here != bound:
            yield BASE_FOLDER, f"has the digest {here}"
    for path in sorted(folder.iterdir()):
        if path.name not in expected:
            yield path.name, "is not a file of an exported model"
    if has_adapters:
        yield from _adapter_differences(folder, facts)
    elif _bytes_of(folder / MODEL_FILE, len(facts.model_file)) != facts.model_file:
        yield MODEL_FILE, "has other bytes, or is missing"


def bound_base(document: RunDocument) -> str | None:
    """Return the hex digits of the base under a run's adapters; None for another model."""
    model = document.experiment.get("model")
    if not isinstance(model, dict) or model.get("name") != "hf":
        return None
    options = model.get("options")
    recorded = options.get(BASE_OPTION) if isinstance(options, dict) else None
    return recorded.removeprefix(RECORDED_FILE) if isinstance(recorded, str) else None


def _adapter_differences(folder: Path, facts: RunFacts) -> Iterator[tuple[str, str]]:
    if model_digest(folder, facts.document.layout) != facts.model:
        yield ADAPTER_FILE, "has other numbers than the run's model"
    try:
        settings = _settings_of(folder / ADAPTER_SETTINGS)
    except (OSError, EncodingError) as error:
        yield ADAPTER_SETTINGS, f"cannot be read: {error!s:.200}"
        return
    options = facts.described("model").get("options", {})
    stated = {"r": options.get("rank"), "lora_alpha": options.get("alpha")}
    stated |= {"base_model_name_or_path": BASE_FOLDER, "peft_type": "LORA"}
    for name, value in stated.items():
        if value is not None and settings.get(name) != value:
            yield f"{ADAPTER_SETTINGS}:{name}", f"is not {value}"


def _settings_of(file: Path) -> dict[str, Any]:
    settings = parse_document(read_file(file, _MAX_SETTINGS_BYTES), _MAX_SETTINGS_BYTES)
    if not isinstance(settings, dict):
        raise EncodingError(f"{file}: must be a map")
    return settings


def _bytes_of(file: Path, size: int) -> bytes:
    try:
        return read_file(file, size)
    except OSError:
        return b""
