"""Auditors, who put attestations and nothing else, and what they are charged for."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.protocol.types import Address, Upload

MAX_AUDITORS = 16
"""Auditors that an operator may name: with 2,000 attestations each they fill half of a board."""

MAX_ATTESTATION_BYTES = 2_000
"""Of an envelope with an attestation: its environment has 1,000 at most."""

Writer = int | Address
"""Index of a client, or address of an auditor."""


@dataclass(frozen=True, slots=True)
class AttestationUpload(Upload):
    """An upload of an attestation, charged to the address that signed it."""

    auditor: Address


def writer_of(upload: Upload) -> Writer:
    """Return who is charged for an upload."""
    return upload.auditor if isinstance(upload, AttestationUpload) else int(upload.client)


def name_of(upload: Upload) -> str:
    """Return who is charged for an upload, for people."""
    if isinstance(upload, AttestationUpload):
        return f"auditor 0x{upload.auditor.hex()}"
    return f"client {upload.client}"
