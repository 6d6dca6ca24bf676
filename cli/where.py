"""Which chain, blobs and contract a command speaks of."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.blobs.store import FolderBlobs
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.chain.ports import ChainReader, ChainWriter

KEY_VARIABLE = "CMFL_PRIVATE_KEY"
MAX_KEYSTORE_BYTES = 100_000

HomeFolder = Annotated[
    Path, typer.Option("--home", help="Folder of chain, blobs and runs.", envvar="CMFL_HOME")
]
RunName = Annotated[
    str | None, typer.Option("--run", help="Which run; needed where the home has several.")
]
Address = Annotated[
    str | None, typer.Option("--address", help="The contract, where there is no manifest.")
]
RpcUrl = Annotated[
    str | None, typer.Option("--rpc-url", help="A JSON-RPC node instead of the home's own chain.")
]
ChainId = Annotated[
    int | None,
    typer.Option("--chain-id", min=1, max=2**64 - 1, help="The chain id that the node must have."),
]
Keystore = Annotated[
    Path | None,
    typer.Option(
        "--keystore", help=f"Encrypted key of the sender (else the variable {KEY_VARIABLE})."
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="The keystore's password; else asked for.")
]

Confirmations = Annotated[
    int,
    typer.Option(
        "--confirmations",
        min=0,
        max=1000,
        help="Blocks on top of a transaction's own before it counts; for a node only.",
    ),
]

DEFAULT_HOME = Path("cmfl-home")


@dataclass(frozen=True, slots=True)
class Where:
    """The options that say where to look.

    Attributes:
        home: folder of chain, blobs and runs.
        run: name of the run.
        address: of the contract.
        rpc_url: of a node, or None for the home's own chain.
        chain_id: that the node must have.
    """

    home: Path
    run: str | None = None
    address: str | None = None
    rpc_url: str | None = None
    chain_id: int | None = None

    @property
    def chain_file(self) -> Path:
        """The home's own chain."""
        return Home(self.home).chain

    def blobs(self) -> FolderBlobs:
        """Return the home's blobs; what `put` returns survives a power cut."""
        from ledger.blobs.store import FolderBlobs

        return FolderBlobs(Home(self.home).blobs, durable=True)

    @contextmanager
    def reader(self) -> Iterator[ChainReader]:
        """Open the chain for reading; a run may be writing to it meanwhile."""
        if self.rpc_url is None:
            from ledger.chain.embedded.reader import EmbeddedReader

            with EmbeddedReader.open(self.chain_file, chain_id=self.chain_id) as chain:
                yield chain
        else:
            from ledger.chain.rpc.reader import RpcReader

            with RpcReader(self.rpc_url, chain_id=self._node_chain_id()) as node:
                yield node

    @contextmanager
    def writer(
        self,
        keystore: Path | None = None,
        password_file: Path | None = None,
        confirmations: int = 0,
    ) -> Iterator[ChainWriter]:
        """Open the chain for writing: the home's own, made if need be, or a node."""
        if self.rpc_url is not None:
            from ledger.chain.rpc.chain import RpcChain
            from ledger.chain.rpc.reader import RpcSettings

            key, chain_id = _sender_key(keystore, password_file), self._node_chain_id()
            settings = RpcSettings(confirmations=confirmations)
            with RpcChain(self.rpc_url, key, chain_id=chain_id, settings=settings) as node:
                yield node
            return
        from ledger.chain.embedded.chain import SALT_BITS, EmbeddedChain, fresh_chain_id

        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"--home {self.home}: {error.strerror}") from error
        with EmbeddedChain.open_or_create(
            self.chain_file,
            chain_id=self.chain_id,
            new_chain_id=fresh_chain_id(secrets.randbits(SALT_BITS)),
        ) as chain:
            yield chain

    def ledger(self, chain: ChainReader) -> CommitteeLedger:
        """Return the contract: the named run's, the address's, or the only one of the home.

        Args:
            chain: where it is.

        Raises:
            ConfigurationError: it cannot be told which.
        """
        from ledger.chain.contract.committee_ledger import CommitteeLedger
        from ledger.chain.contract.deployment import connect, require_code
        from ledger.chain.contract.manifest import read_manifest

        if self.address is not None:
            require_code(chain, self.address)
            return CommitteeLedger(chain, self.address)
        return connect(chain, read_manifest(self._manifest()))

    def _manifest(self) -> Path:
        home = Home(self.home)
        if self.run is not None:
            found = [run for run in home.deployed() if run.path.name == self.run]
            if not found:
                raise ConfigurationError(f"there is no deployed run {self.run!r} in {self.home}")
            return found[0].manifest
        found = home.deployed()
        if not found:
            raise ConfigurationError(
                f"there is no deployed run in {self.home}: make one by cmfl run"
            )
        if len(found) > 1:
            names = ", ".join(run.path.name for run in found)
            raise ConfigurationError(f"name one of the runs in {self.home} with --run: {names}")
        return found[0].manifest

    def _node_chain_id(self) -> int:
        if self.chain_id is None:
            raise ConfigurationError("--rpc-url needs --chain-id: the id that the node must have")
        return self.chain_id


def _sender_key(keystore: Path | None, password_file: Path | None) -> bytes:
    """Return the sender's private key from a keystore, or from the environment."""
    if keystore is None:
        return _environment_key()
    from eth_account import Account

    password = _asked_password() if password_file is None else _read(password_file).rstrip("\n")
    try:
        return bytes(Account.decrypt(_read(keystore), password))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"--keystore {keystore}: {error}") from error


def _asked_password() -> str:
    try:
        return str(typer.prompt("Password of the keystore", hide_input=True, err=True))
    except typer.Abort as error:
        raise ConfigurationError(
            "the keystore's password is asked for at a terminal; give --password-file"
        ) from error


def _environment_key() -> bytes:
    from ledger.protocol.signing import GROUP_ORDER

    text = os.environ.get(KEY_VARIABLE, "")
    try:
        key = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        key = b""
    if len(key) != 32 or not 0 < int.from_bytes(key) < GROUP_ORDER:
        # The value itself is a secret and never shown.
        raise ConfigurationError(
            f"a node needs a sender: give --keystore, or a key of 32 bytes hex in {KEY_VARIABLE}"
        )
    return key


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_KEYSTORE_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
