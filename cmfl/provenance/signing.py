"""Signatures with a key on an elliptic curve: of folders (OpenSSF Model Signing), of statements.

A statement is signed in a DSSE envelope, a folder in a sigstore bundle over all of its files. Both
say who vouches for a document; what the document says is derived from the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clients.datasets.files.extra import imported
from cmfl.provenance.statement import SIGNATURE_FILE
from ledger.audit.proofs.json_documents import parse_document
from ledger.io.home import read_file
from ledger.protocol.errors import CmflError, ConfigurationError, EncodingError

MAX_BYTES = 16 << 20
"""A signature names each file of a folder in some 150 bytes."""
CURVES = {"secp256r1", "secp384r1", "secp521r1"}

_OF_SIGNATURE = {"keyid", "sig"}
_MAX_KEY_BYTES = 1 << 16
_EXTRA = "provenance"


class SignatureMismatchError(CmflError):
    """A signature is not that of the key over what is there."""


def require_private_key(path: Path) -> Any:
    """Return the private key in a PEM file."""
    return _key(path, "load_pem_private_key", (None,))


def require_public_key(path: Path) -> Any:
    """Return the public key in a PEM file."""
    return _key(path, "load_pem_public_key", ())


def sign_folder(folder: Path, private_key: Path) -> None:
    """Write `model.sig` over all other files of a folder, those of git too."""
    imported("model_signing", _EXTRA, "signed models")
    from model_signing import hashing, signing

    hashed = hashing.Config().set_ignored_paths(paths=[SIGNATURE_FILE], ignore_git_paths=False)
    config = signing.Config().use_elliptic_key_signer(private_key=private_key)
    try:
        config.set_hashing_config(hashed).sign(folder, folder / SIGNATURE_FILE)
    except ValueError as error:
        raise ConfigurationError(f"{folder}: cannot be signed: {error!s:.300}") from error


def require_signed_folder(folder: Path, public_key: Path) -> None:
    """Accept a folder all of whose files a key has signed, and that has no others."""
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
        raise SignatureMismatchError("the signature is not the key's") from error
    except (EncodingError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise SignatureMismatchError(f"{error!s:.500}") from error


def signed_envelope(payload: bytes, payload_type: str, private_key: Path) -> dict[str, Any]:
    """Return a DSSE envelope around a payload, as plain data for JSON."""
    imported("securesystemslib", _EXTRA, "signed statements")
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    envelope = Envelope(payload, payload_type, {})
    envelope.sign(CryptoSigner(require_private_key(private_key)))
    return dict(envelope.to_dict())


def require_signed_envelope(envelope: dict[str, Any], public_key: Path) -> None:
    """Accept an envelope that a key has signed."""
    imported("securesystemslib", _EXTRA, "signed statements")
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import FormatError, VerificationError
    from securesystemslib.signer import SSlibKey

    key = SSlibKey.from_crypto(require_public_key(public_key))
    signatures = envelope.get("signatures")
    try:
        # The library changes what it reads.
        copies = [dict(each) for each in signatures] if isinstance(signatures, list) else []
        if any(each.keys() != _OF_SIGNATURE for each in copies):
            raise SignatureMismatchError("a signature has keyid and sig, and nothing else")
        Envelope.from_dict(envelope | {"signatures": copies}).verify([key], 1)
    except (VerificationError, FormatError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise SignatureMismatchError("no signature in the envelope is the key's") from e


def _key(path: Path, loader: str, arguments: tuple[None, ...]) -> Any:
    serialization = imported(
        "cryptography.hazmat.primitives.serialization", _EXTRA, "keys of signatures"
    )
    try:
        data = read_file(path, _MAX_KEY_BYTES)
        key = getattr(serialization, loader)(data, *arguments)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except TypeError as error:
        raise ConfigurationError(f"{path}: the key is encrypted: give it in plain PEM") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: is no PEM key of the right kind") from error
    curve = getattr(getattr(key, "curve", None), "name", "no curve")
    if curve not in CURVES:
        raise ConfigurationError(f"{path}: the key is on {curve}, must be one of {sorted(CURVES)}")
    return key
