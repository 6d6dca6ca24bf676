"""Owners for tests: public keys, an agreed configuration, and the run document it comes to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clients.configuration.loading import load
from clients.configuration.schema import Configuration
from clients.registration import (
    Registry,
    RegistryEntry,
    combined_registry,
    proposal_digest,
    signed_entry,
)
from clients.runs.population import populate, run_document, with_training_path
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import keccak256
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import Address

RUN = "fed"
OWNERS = 6
FORM = (
    "data.name=own",
    "data.options.shape=[1,2,2]",
    "data.options.classes=3",
    f"protocol.clients={OWNERS}",
    "protocol.active_rate=1.0",
    "protocol.committee_rate=0.5",
)


def owner_key(number: int) -> bytes:
    return keccak256(b"PUBLIC TEST KEY of owner %d" % number)


def owner(number: int) -> KeySigner:
    return KeySigner(owner_key(number))


def agreed(*settings: str) -> Configuration:
    return load("smoke", settings=(*FORM, *settings))


def entry_of(number: int, *settings: str, run: str = RUN) -> RegistryEntry:
    return signed_entry(owner(number), run, proposal_digest(agreed(*settings)), 10 + number)


def registry_of(owners: int = OWNERS) -> Registry:
    return combined_registry((f"owner {number}", entry_of(number)) for number in range(owners))


def document_of(registry: Registry) -> RunDocument:
    population = populate(agreed(), registry.owners)
    return run_document(with_training_path(agreed(), population), population)


def samples_file(path: Path, rows: int, seed: int | None = None) -> Path:
    rng = np.random.default_rng(rows if seed is None else seed)
    x = rng.random((rows + 2, 1, 2, 2), dtype=np.float32)
    y = rng.integers(3, size=rows + 2)
    np.savez(path, allow_pickle=True, x=x[:rows], y=y[:rows], x_test=x[rows:], y_test=y[rows:])
    return path


def owner_of(address: Address) -> int:
    return next(number for number in range(100) if owner(number).address == address)
