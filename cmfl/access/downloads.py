"""Proofs and bundles from a service.

A service may send anything. A download is read within bounds, must be of the named contract, and is
then checked like any untrusted file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cmfl.access.history import served_deployment
from cmfl.access.target import Target
from ledger.protocol.errors import EncodingError, ServiceError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.audit.bundles.bundle import RoundBundle
    from ledger.audit.bundles.container import BundleFile
    from ledger.audit.proofs.proof import ClientProof, RoundBasis


def download_proof(
    target: Target, round_number: int, client: ClientId, *, whole: bool
) -> tuple[bytes, ClientProof]:
    """Return the proof of a client's part in a round, as bytes and parsed.

    Args:
        whole: whether a head alone must suffice to check it.
    """
    from ledger.audit.proofs.proof_document import read_proof

    with served_deployment(target) as deployment:
        data = deployment.proof(round_number, client, whole=whole)
    with _as_sent("proof"):
        proof = read_proof(data)
    _require_meant(target, proof)
    return data, proof


@contextmanager
def download_bundle(
    target: Target, round_number: int, *, whole: bool
) -> Iterator[tuple[Path, RoundBundle, BundleFile]]:
    """Download a round's bundle into a temporary file, which the caller may move away.

    Args:
        whole: whether a head alone must suffice to check it.
    """
    from ledger.audit.bundles.bundle import read_manifest
    from ledger.audit.bundles.container import open_bundle

    with tempfile.TemporaryDirectory(prefix=".cmfl-") as temporary:
        path = Path(temporary) / "bundle.tar"
        with served_deployment(target) as deployment, path.open("xb") as file:
            deployment.save_bundle(round_number, file, whole=whole)
            file.flush()
            os.fsync(file.fileno())
        with _as_sent("bundle"), open_bundle(path) as parts:
            bundle = read_manifest(parts.manifest, parts)
            number = bundle.basis.round
            if number != round_number:
                raise ServiceError(
                    f"the bundle that was sent is of round {number}, not {round_number}"
                )
            _require_meant(target, bundle.basis)
            yield path, bundle, parts


@contextmanager
def _as_sent(what: str) -> Iterator[None]:
    try:
        yield
    except EncodingError as error:
        raise ServiceError(f"what was sent as {what}: {error}") from error


def _require_meant(target: Target, basis: RoundBasis) -> None:
    """Reject a download of another contract or chain than the command names."""
    from ledger.chain.addresses import checksum

    if target.address not in {None, checksum(basis.contract)}:
        raise ServiceError(
            f"what was sent is of contract {checksum(basis.contract)}, not of {target.address}"
        )
    if target.chain_id not in {None, basis.chain_id}:
        raise ServiceError(f"what was sent is of chain {basis.chain_id}, not of {target.chain_id}")
