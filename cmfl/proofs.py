"""Proofs of single clients' parts: made from chain and blobs, or sent by a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cmfl.arguments import PATH, WHOLE, naming, require
from cmfl.where import Target, download_proof, opened_ledger
from ledger.io.folders import write_named
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.audit.proofs.proof import ClientProof


class Proof:
    """A statement about one client in one round, with all that it follows from.

    Attributes:
        data: the document, as `cmfl export proof` writes it.
    """

    def __init__(self, data: bytes) -> None:
        """Read the document."""
        from ledger.audit.proofs.proof_document import read_proof

        if not isinstance(data, bytes):
            raise ConfigurationError(f"data = {data!r:.80}: must be bytes")
        self.data = data
        self.parsed: ClientProof = read_proof(data)

    @property
    def round(self) -> int:
        """The round that it is about."""
        return self.parsed.round

    @property
    def client(self) -> int:
        """The client that it is about."""
        return int(self.parsed.client)

    @property
    def statement(self) -> str:
        """The claim in a sentence; `cmfl.verify` checks it."""
        from ledger.audit.proofs.proof import stated

        return stated(self.parsed.round, self.parsed.client, self.parsed.statement)

    def save(self, path: str | Path) -> Path:
        """Write the document, and return the path.

        An existing file is replaced.

        Raises:
            OSError: it cannot be written.
        """
        require(PATH, path=path)
        file = Path(path)
        write_named(file, self.data)
        return file

    def __repr__(self) -> str:
        return f"<cmfl.Proof, not checked: {self.statement}>"


def make(target: Target, number: int, client: int) -> Proof:
    """Return the proof of a client's part in a round, from chain and blobs or from a service."""
    from ledger.audit.proofs.proof_document import proof_bytes
    from ledger.audit.proofs.proof_maker import make_proof

    require(WHOLE, client=client)
    if client < 0:
        raise ConfigurationError(f"client {client}: clients are counted from 0")
    who = ClientId(client)
    if target.remote is not None:
        return Proof(download_proof(target, number, who, whole=True)[0])
    with opened_ledger(target) as ledger:
        return Proof(proof_bytes(make_proof(ledger, target.published(), number, who, whole=True)))


def read(path: Path) -> Proof:
    """Return the proof in a file."""
    from ledger.audit.proofs.proof import MAX_PROOF_BYTES
    from ledger.io.home import read_file

    with naming(path):
        return Proof(read_file(path, MAX_PROOF_BYTES))
