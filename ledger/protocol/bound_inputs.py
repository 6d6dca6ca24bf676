"""Digests of the inputs of an update other than the model, the seed and the settings.

The run document has three of them: `model_source`, `frozen_state` and `data_root`. With the same
code, frozen tensors and samples an update can be repeated bit for bit; a participant with others
is warned before the first round (docs/protocol/environments.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from ledger.protocol import merkle
from ledger.protocol.encoding import sha256, u32, u64
from ledger.protocol.types import NO_DIGEST, ClientId, Digest


@dataclass(frozen=True, slots=True)
class NamedArray:
    """Numbers with a name, as they are hashed.

    Attributes:
        name: of a parameter or buffer, or what else tells it from the others.
        dtype: name of the type as NumPy and PyTorch have it: float32, int64, bfloat16.
        shape: sizes, of which a single number has none.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def head(self) -> bytes:
        """Return what is hashed before the numbers: their name, type and shape."""
        name = self.name.encode()
        sizes = b"".join(u64(size) for size in self.shape)
        return u32(len(name)) + name + self.dtype.encode() + u32(len(self.shape)) + sizes


def frozen_state(arrays: Iterable[NamedArray]) -> Digest:
    """Return the digest of a model's frozen parameters and buffers, as constructed.

    sha256 over head and numbers of each, ascending by the UTF-8 of its name; zeros without any.
    """
    ordered = sorted(arrays, key=lambda array: array.name.encode())
    return _digest_of(b"", ordered) if ordered else NO_DIGEST


def source_of_package(package: str, version: str, qualified_name: str) -> Digest:
    """Return the digest of a model class of an installed package, by its qualified name."""
    return sha256(f"{package}=={version}:{qualified_name}".encode())


def samples_digest(salt: bytes, x: NamedArray, y: NamedArray) -> Digest:
    """Return the digest of one client's training samples, in order."""
    return _digest_of(salt, (x, y))


def simulated_salt(seed: int, client: ClientId) -> bytes:
    """Return the salt of a simulated client's samples, which is no secret."""
    return sha256(b"data" + u64(seed) + u32(client))


def data_root(counts: Iterable[int], digests: Iterable[Digest]) -> Digest:
    """Return the root over number and digest of each client's samples, zeros where undisclosed."""
    pairs = zip(counts, digests, strict=True)
    leaves = [(client, *pair) for client, pair in enumerate(pairs)]
    return merkle.root(merkle.DATA_LEAF, leaves)


def _digest_of(salt: bytes, arrays: Iterable[NamedArray]) -> Digest:
    hashed = hashlib.sha256(salt)
    for array in arrays:
        hashed.update(array.head())
        hashed.update(array.data)
    return Digest(hashed.digest())
