"""Proofs and bundles that a service sent: read here, and held against what the caller trusts.

A service may send anything. What it sends is read within bounds, must be of the contract that was
named, and is then checked like a file of a stranger.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.remote import deployment_at
from ledger.protocol.errors import EncodingError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.client.deployment import RemoteDeployment
    from cli.target import Target
    from ledger.audit.bundles.bundle import RoundBundle
    from ledger.audit.bundles.container import BundleFile
    from ledger.audit.proofs.proof import ClientProof, RoundBasis
    from ledger.protocol.types import ClientId


def download_proof(
    where: Target, round_number: int, client: ClientId, *, whole: bool
) -> tuple[bytes, ClientProof]:
    """Return what a service says became of a client, as it came and as it was read.

    Args:
        where: which service and which deployment.
        round_number: t.
        client: who.
        whole: whether it must suffice for a head alone.

    Raises:
        ServiceError: there is none, or it is no proof, or of another contract.
    """
    from ledger.audit.proofs.proof_document import read_proof

    with _deployment(where) as deployment:
        data = deployment.proof(round_number, client, whole=whole)
    with _as_sent("proof"):
        found = read_proof(data)
    _require_meant(where, found)
    return data, found


@contextmanager
def download_bundle(
    where: Target, round_number: int, folder: Path | None, *, whole: bool
) -> Iterator[tuple[Path, RoundBundle, BundleFile]]:
    """Fetch a round's bundle into a file that is gone afterwards, unless it is moved away.

    Args:
        where: which service and which deployment.
        round_number: t.
        folder: where the file is put; None for the system's own place.
        whole: whether it must suffice for a head alone.

    Yields:
        The file, what it says of the round, and its blobs.

    Raises:
        ServiceError: there is none, or it is no bundle, or of another contract or round.
        OSError: it cannot be written.
    """
    from ledger.audit.bundles.bundle_manifest import read_manifest
    from ledger.audit.bundles.container import open_bundle

    with tempfile.TemporaryDirectory(prefix=".cmfl-", dir=folder) as temporary:
        path = Path(temporary) / "bundle.tar"
        with _deployment(where) as deployment, path.open("xb") as file:
            deployment.save_bundle(round_number, file, whole=whole)
            file.flush()
            os.fsync(file.fileno())
        with _as_sent("bundle"), open_bundle(path) as parts:
            found = read_manifest(parts.manifest, parts)
            if found.ground.round != round_number:
                raise ServiceError(
                    f"the bundle that was sent is of round {found.ground.round}, not {round_number}"
                )
            _require_meant(where, found.ground)
            yield path, found, parts


@contextmanager
def _deployment(where: Target) -> Iterator[RemoteDeployment]:
    assert where.remote is not None, "only what a service sends is fetched"
    with where.remote.service() as service:
        yield deployment_at(service, where.chain_id, where.address, where.run)


@contextmanager
def _as_sent(what: str) -> Iterator[None]:
    """Say of what cannot be read that it was sent.

    Raises:
        ServiceError: it cannot be read.
    """
    try:
        yield
    except EncodingError as error:
        raise ServiceError(f"what was sent as {what}: {error}") from error


def _require_meant(where: Target, ground: RoundBasis) -> None:
    """Refuse what is of another contract or chain than the command names.

    Raises:
        ServiceError: it is.
    """
    from ledger.chain.addresses import checksum

    if where.address not in {None, checksum(ground.contract)}:
        raise ServiceError(
            f"what was sent is of contract {checksum(ground.contract)}, not of {where.address}"
        )
    if where.chain_id not in {None, ground.chain_id}:
        raise ServiceError(f"what was sent is of chain {ground.chain_id}, not of {where.chain_id}")
