"""A real store over a real folder, whose writers are the clients of a real contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.server import listening_socket, url_of
from api.settings import StoreSettings
from api.store.app import STORE_LOCK, server_for
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.io.home import sole_process
from ledger.protocol.encoding import sha256
from ledger.protocol.signing import sign
from ledger.protocol.types import ClientId, Domain, Upload
from ledger.storage.http import UploadSigner, authorization_header
from tests.actors.deployed import Deployed, deployed_on
from tests.actors.support import PARAMETERS, signers
from tests.api.served import in_a_thread
from tests.patience import PATIENCE_SECONDS


@dataclass(frozen=True)
class Contract:
    """A contract whose first round is open, and how others read it."""

    run: Deployed
    ledger: CommitteeLedger

    @property
    def domain(self) -> Domain:
        return self.run.context.domain


@dataclass(frozen=True)
class Store:
    """A store that is served."""

    url: str
    folder: Path
    domain: Domain
    http: httpx.Client

    def header(self, data: bytes, client: int = 0, round_number: int = 1) -> str:
        """Return what a client shows for some bytes."""
        return self.signed(self.upload(data, client, round_number))

    def upload(
        self, data: bytes, client: int = 0, round_number: int = 1, path: str | None = None
    ) -> Upload:
        """Return what a client signs for some bytes, as a blob if no path is given."""
        url = f"{self.url}{path_of(data) if path is None else path}"
        return Upload(round_number, ClientId(client), url, sha256(data), len(data))

    def signed(self, upload: Upload, domain: Domain | None = None) -> str:
        signer = signers()[upload.client]
        return authorization_header(upload, sign(signer, domain or self.domain, upload))

    def put(self, data: bytes, client: int = 0, round_number: int = 1) -> httpx.Response:
        headers = {"Authorization": self.header(data, client, round_number)}
        return self.http.put(path_of(data), content=data, headers=headers)

    def files(self) -> set[str]:
        found = [*self.folder.glob("??/*"), *self.folder.glob("incoming/*")]
        return {path.name for path in found}


def path_of(data: bytes) -> str:
    name = sha256(data).hex()
    return f"/{name[:2]}/{name}"


def uploads_of(domain: Domain, client: int = 0, others: tuple[int, ...] = ()) -> UploadSigner:
    more = tuple((ClientId(one), signers()[one]) for one in others)
    return UploadSigner(domain, signers()[client], ClientId(client), more, round=1)


@contextmanager
def contract_in(folder: Path, **changes: Any) -> Iterator[Contract]:
    from dataclasses import replace

    path = folder / "chain.sqlite"
    with EmbeddedChain.create(path, clock=lambda: 1_700_000_000.0, synchronous="NORMAL") as chain:
        run = deployed_on(chain, folder, replace(PARAMETERS, **changes))
        with EmbeddedReader.open(path) as reader:
            ledger = run.context.ledger
            assert isinstance(ledger, CommitteeLedger)
            yield Contract(run, CommitteeLedger(reader, ledger.address, ledger.from_block))
        run.context.journal.close()  # type: ignore[attr-defined]


@contextmanager
def served(folder: Path, ledger: CommitteeLedger, **bounds: Any) -> Iterator[str]:
    """Yield the URL of a store of a contract's clients."""
    with sole_process(folder, STORE_LOCK), listening_socket("127.0.0.1", 0) as listener:
        urls = bounds.pop("public_urls", (url_of(listener),))
        settings = StoreSettings(folder=folder, public_urls=urls, **bounds)
        with in_a_thread(server_for(settings, ledger), listener):
            yield url_of(listener)


@contextmanager
def stored(folder: Path, contract: Contract, **bounds: Any) -> Iterator[Store]:
    with (
        served(folder, contract.ledger, **bounds) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        yield Store(url, folder, contract.domain, http)


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contract]:
    """A contract that no test takes any further."""
    with contract_in(tmp_path_factory.mktemp("contract")) as found:
        yield found


@pytest.fixture
def store(tmp_path: Path, contract: Contract) -> Iterator[Store]:
    with stored(tmp_path / "store", contract) as found:
        yield found
