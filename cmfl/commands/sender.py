"""The account that signs and pays on a node: from a keystore, or from the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmfl.commands.amounts import GWEI_DECIMALS, wei_of
from cmfl.commands.options import KEY_VARIABLE
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from ledger.chain.rpc.node import RpcSettings
    from ledger.chain.rpc.rpc_chain import RpcChain

KeyFile = Annotated[list[Path], typer.Option("--keystore", help="The keystore, an encrypted key.")]
KeyPassword = Annotated[
    Path | None, typer.Option("--password-file", help="The keystore's password; else asked for.")
]

MAX_KEYSTORE_BYTES = 100_000
WEI = 10**18
# Errors of decryption for a keystore that was written by hand.
_UNREADABLE = (
    *(ValueError, LookupError, TypeError, AttributeError, RecursionError),
    *(OverflowError, MemoryError),
)


@dataclass(frozen=True, slots=True)
class Sender:
    """The options of the account that signs on a node.

    Attributes:
        keystore: the encrypted key; None for the key in the environment.
        password_file: the keystore's password; None to ask for it.
        confirmations: blocks on top of a transaction's own before it counts.
        max_fee: limit in gwei per gas, base fee and tip together; None for the default.
        max_tip: limit of the tip in gwei per gas; None for the default.
    """

    keystore: Path | None = None
    password_file: Path | None = None
    confirmations: int | None = None
    max_fee: str | None = None
    max_tip: str | None = None

    @contextmanager
    def chain(self, url: str, chain_id: int) -> Iterator[RpcChain]:
        """Open a node for writing."""
        from ledger.chain.ports import TransactionRefusedError
        from ledger.chain.rpc.rpc_chain import RpcChain

        keystores = [] if self.keystore is None else [self.keystore]
        key = private_keys(keystores, self.password_file)[0]
        with RpcChain(url, key, chain_id=chain_id, settings=self.settings()) as node:
            try:
                yield node
            except TransactionRefusedError as error:
                raise TransactionRefusedError(
                    f"{error} (the account is that of {self.source})"
                ) from error

    def settings(self) -> RpcSettings:
        """Return time-outs, limits and fees; raise ConfigurationError for an invalid cap."""
        from ledger.chain.rpc.node import RpcSettings

        settings = RpcSettings(confirmations=self.confirmations or 0)
        if self.max_fee is not None:
            fee = wei_of(self.max_fee, "--max-fee", GWEI_DECIMALS)
            tip = min(fee, settings.max_tip_per_gas_wei)
            settings = replace(settings, max_fee_per_gas_wei=fee, max_tip_per_gas_wei=tip)
        if self.max_tip is not None:
            tip = wei_of(self.max_tip, "--max-tip", GWEI_DECIMALS)
            if tip > settings.max_fee_per_gas_wei:
                raise ConfigurationError(
                    f"--max-tip {self.max_tip}: the tip is part of the fee, whose cap is lower"
                )
            settings = replace(settings, max_tip_per_gas_wei=tip)
        return settings

    def address(self) -> str | None:
        """Return the account's address, as far as it is known without a password."""
        if self.keystore is None:
            return environment_address()
        return keystore_address(read_keystore(self.keystore))

    @property
    def source(self) -> str:
        """Description of the key's source."""
        return f"the variable {KEY_VARIABLE}" if self.keystore is None else str(self.keystore)


def private_keys(keystores: Sequence[Path], password_file: Path | None) -> list[bytes]:
    """Return the private keys in keystores, or the one in the environment if there are none.

    Args:
        keystores: one for each client.
        password_file: the password of all of them; None to ask for each.

    Raises:
        ConfigurationError: there is no key, or one that cannot be read.
    """
    if not keystores:
        return [environment_key()]
    return [keystore_key(keystore, password_file) for keystore in keystores]


def only_keystore(keystores: Sequence[Path]) -> Path:
    """Return the keystore of a command that signs with one key.

    Raises:
        ConfigurationError: there are several.
    """
    if len(keystores) > 1:
        named = ", ".join(str(keystore) for keystore in keystores)
        raise ConfigurationError(
            f"--keystore is given {len(keystores)} times ({named}): this command takes one key"
        )
    return keystores[0]


def keystore_key(keystore: Path, password_file: Path | None) -> bytes:
    """Return the private key in a keystore.

    Args:
        keystore: the file.
        password_file: with its password; None to ask for it.

    Raises:
        ConfigurationError: it cannot be read, is not a keystore, or has another password.
    """
    from eth_account import Account

    content = read_keystore(keystore)
    if password_file is None:
        password, source = _asked_password(), "typed"
    else:
        password, source = password_in(password_file), f"in {password_file}"
    try:
        return bytes(Account.decrypt(content, password))
    except _UNREADABLE as error:
        if "MAC mismatch" in str(error):
            account = keystore_address(content)
            of = "" if account is None else f" of account {account}"
            raise ConfigurationError(
                f"--keystore {keystore}: the password {source} is not that of this "
                f"keystore{of} (MAC mismatch)"
            ) from error
        raise ConfigurationError(f"--keystore {keystore}: no keystore: {error}") from error


def new_password(password_file: Path | None) -> str:
    """Return the password of a new keystore, typed twice unless it is in a file.

    Raises:
        ConfigurationError: it is empty, the two differ, or there is no terminal.
    """
    if password_file is None:
        password = _asked_password()
        if _asked_password("The same again") != password:
            raise ConfigurationError("the two passwords differ; no keystore was made")
    else:
        password = password_in(password_file)
    if not password:
        raise ConfigurationError("an empty password protects nothing; no keystore was made")
    return password


def read_keystore(path: Path) -> dict[str, Any]:
    """Return the content of a keystore.

    Raises:
        ConfigurationError: it cannot be read, or is not a keystore.
    """
    try:
        content = parse_json(_read(path))
    except ValueError as error:
        raise ConfigurationError(f"--keystore {path}: not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(
        content.get("crypto", content.get("Crypto")), dict
    ):
        raise ConfigurationError(f"--keystore {path}: no keystore: it has no object 'crypto'")
    return content


def keystore_address(content: dict[str, Any]) -> str | None:
    """Return the account that a keystore names; None if it names none."""
    from ledger.chain.addresses import eip55

    try:
        return eip55(str(content.get("address")))
    except ChainError:
        return None


def environment_address() -> str | None:
    """Return the account of the key in the environment; None if there is no key."""
    if not os.environ.get(KEY_VARIABLE):
        return None
    from ledger.chain.addresses import checksum
    from ledger.protocol.signing import KeySigner

    return checksum(KeySigner(environment_key()).address)


def in_ether(wei: int) -> str:
    """Return a readable amount of wei."""
    return f"{wei / WEI:.6g} ETH" if wei >= WEI // 1_000_000 or wei == 0 else f"{wei} wei"


def _asked_password(question: str = "Password of the keystore") -> str:
    fault = "the keystore's password is asked for at a terminal; give --password-file"
    if not _has_terminal():
        raise ConfigurationError(fault)
    try:
        return str(typer.prompt(question, hide_input=True, err=True))
    except typer.Abort as error:
        raise ConfigurationError(fault) from error


def _has_terminal() -> bool:
    """Return whether a password can be typed unseen; otherwise Python would warn and show it."""
    import termios

    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            termios.tcgetattr(terminal)
    except OSError:
        return sys.stdin.isatty()
    except termios.error:
        return False
    return True


def environment_key() -> bytes:
    """Return the private key in the environment.

    Raises:
        ConfigurationError: there is none.
    """
    from ledger.protocol.signing import GROUP_ORDER

    text = os.environ.get(KEY_VARIABLE, "")
    try:
        key = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        key = b""
    if len(key) != 32 or not 0 < int.from_bytes(key) < GROUP_ORDER:
        # The value is a secret and is never shown.
        raise ConfigurationError(
            f"a node needs a sender: give --keystore, or a key of 32 bytes hex in {KEY_VARIABLE}"
        )
    return key


def password_in(path: Path) -> str:
    """Return the password in a file or a pipe, without its line end.

    Raises:
        ConfigurationError: it cannot be read, is too large, or is not text.
    """
    return _read(path).rstrip("\r\n")


def _read(path: Path) -> str:
    try:
        # Not only regular files: a password may come through a pipe, as from `<(pass show key)`.
        with path.open("rb") as file:
            data = file.read(MAX_KEYSTORE_BYTES + 1)
        if len(data) > MAX_KEYSTORE_BYTES:
            raise ConfigurationError(f"{path} is over {MAX_KEYSTORE_BYTES} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error
