"""The binding of a run's data to its document: digests of files and of each client's samples."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import FederatedData, Samples
from clients.datasets.registry import DataChoice, data_digest
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import NamedArray, data_root, samples_digest, simulated_salt
from ledger.protocol.types import NO_DIGEST, ClientId, Digest

_DIGESTS = "digests"
"""Run document field with a 32-byte digest of each owner's samples, which only the owner has."""

_SALT = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")


def salt_of(text: str, subject: str) -> bytes:
    """Return a salt of 64 hex digits; `subject` names it in the message."""
    match = _SALT.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{subject}: must be 64 hex digits")
    return bytes.fromhex(match[1])


def samples_digest_of(samples: Samples, salt: bytes) -> Digest:
    """Return the digest of one client's training samples as stored, in order."""
    return samples_digest(salt, _named("x", samples.x), _named("y", samples.y))


def simulated_digests(data: FederatedData, seed: int) -> tuple[Digest, ...]:
    """Return the digest of each client's samples in a simulation, where everybody has them.

    Args:
        data: divided among the clients, before any client poisons its own.
        seed: of the run; the salts follow from it.
    """
    salts = (simulated_salt(seed, ClientId(client)) for client in range(data.clients))
    return tuple(map(samples_digest_of, data.train, salts))


def require_bound_files(document: RunDocument, choice: DataChoice) -> None:
    """Reject other data files or settings than the run was deployed with."""
    recorded, here = document.experiment.get("data"), data_digest(choice)
    entries = recorded.items() if isinstance(recorded, dict) else ()
    bound = {name: value for name, value in entries if name != _DIGESTS}
    if here == bound:
        return
    source = choice.path or choice.name
    subject, was, now = _first_difference(bound, here)
    raise ConfigurationError(
        f"the data {source} are not those that the run was deployed with: {subject} was {was}, and "
        f"is {now}"
    )


def require_bound_own(
    document: RunDocument, client: ClientId, samples: Samples, salt: bytes
) -> None:
    """Reject other samples of an owner than it registered, if it disclosed their digest.

    Args:
        document: of a run with samples of each owner's own.
    """
    disclosed = document.experiment.get("data", {}).get(_DIGESTS, b"")
    digests = [Digest(disclosed[at : at + 32]) for at in range(0, len(disclosed), 32)]
    counts = [registered.samples for registered in document.registry]
    if len(digests) != len(counts) or data_root(counts, digests) != document.data_root:
        raise ConfigurationError("the run document's data_root is not that of its data digests")
    here, bound = samples_digest_of(samples, salt), digests[client]
    if bound not in {NO_DIGEST, here}:
        raise ConfigurationError(
            f"client {client}: the training samples are not those that were registered: their "
            f"digest was 0x{bound.hex()}, and is 0x{here.hex()}"
        )


def require_bound_samples(
    document: RunDocument, digests: Sequence[Digest], counts: Sequence[int]
) -> None:
    """Reject other training samples than the run was deployed with."""
    here = data_root(counts, digests)
    if here != document.data_root:
        raise ConfigurationError(
            f"the training samples are not those that the run was deployed with: their root was "
            f"0x{document.data_root.hex()}, and is 0x{here.hex()}"
        )


def _first_difference(bound: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, str, str]:
    names = sorted({*bound, *here}, key=lambda name: (name != "sha256", name))
    name = next(name for name in names if bound.get(name) != here.get(name))
    subject = "the sha256 of its files" if name == "sha256" else f"data.{name}"
    return subject, f"{bound.get(name)!s:.300}", f"{here.get(name)!s:.300}"


def _named(name: str, values: NDArray[Any]) -> NamedArray:
    plain = np.ascontiguousarray(values)
    if sys.byteorder == "big" or plain.dtype.byteorder == ">":
        plain = plain.astype(plain.dtype.newbyteorder("<"))
    data = plain.reshape(-1).view(np.uint8).data if plain.size else b""
    return NamedArray(name, plain.dtype.newbyteorder("=").name, plain.shape, data)
