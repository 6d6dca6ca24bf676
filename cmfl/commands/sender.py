"""Keys, the account that signs and pays on a node, and commands for people to go on with."""

from __future__ import annotations

import logging
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from cmfl.commands import options
from cmfl.commands.console import command_line, print_lines
from cmfl.commands.options import KEY_VARIABLE
from cmfl.where import URL_VARIABLE, Target
from ledger.chain.ports import TransactionRefusedError
from ledger.io.home import naming
from ledger.io.parsing import parse_json
from ledger.protocol.encoding import checksum, eip55
from ledger.protocol.errors import BlobError, ChainError, ConfigurationError
from ledger.protocol.signing import GROUP_ORDER, KeySigner
from ledger.storage.blobs import parse_locations

if TYPE_CHECKING:
    from clients.worker.process import WorkerTarget
    from ledger.chain.rpc.node import RpcSettings
    from ledger.chain.rpc.rpc_chain import RpcChain


_log = logging.getLogger(__name__)

BLOBS_VARIABLE = "CMFL_BLOBS"
MAILBOX_VARIABLE = "CMFL_MAILBOX"
DATA_VARIABLE = "CMFL_DATA"

_SECRET = "which may have a key in it"  # noqa: S105 - a sentence
_USUAL = {
    URL_VARIABLE: f"the node's URL, {_SECRET}",
    BLOBS_VARIABLE: f"the place of the blobs, {_SECRET}",
    MAILBOX_VARIABLE: f"the place of the mail, {_SECRET}",
    DATA_VARIABLE: "the path of your data",
}


def print_next(introduction: str, command: str, descriptions: dict[str, str] | None = None) -> None:
    """Print a shell command, and what to put into its variables; descriptions are unusual ones."""
    print_lines([f"{introduction}: {command}", *missing_variables(command, descriptions)])


def command_on(where: Target, *words: object, **options: object) -> str:
    """Return a command on the node of a target, for a shell and without secrets."""
    if where.rpc_url is None:
        return command_line(*words, **options)
    command = command_line(*words, **options, chain_id=where.chain_id)
    return f"{command} --rpc-url {quoted_url(where.rpc_url)}"


def missing_variables(command: str, descriptions: dict[str, str] | None = None) -> list[str]:
    """Return lines about the variables of a command that are not set here; see `print_next`."""
    return [
        f"once {variable} holds {content}"
        for variable, content in (_USUAL | (descriptions or {})).items()
        if variable_in_shell(variable) in command and not os.environ.get(variable)
    ]


def variable_in_shell(name: str) -> str:
    """Return a variable in shell syntax, quoted."""
    return f'"${name}"'


def quoted_url(url: str) -> str:
    """Return a node's URL for a shell, or its variable if it may contain a secret."""
    from ledger.io.http import HttpServer

    try:
        shown = HttpServer(url, timeout_seconds=1).shown_url
    except ValueError:
        shown = ""  # the connection to the node reports it
    return shlex.quote(url) if url.rstrip("/") == shown else variable_in_shell(URL_VARIABLE)


def quoted_place(text: str, variable: str) -> str:
    """Return a location of blobs or mail for a shell, or `variable` if it may contain a secret."""
    try:
        shown = ",".join(place.shown for place in parse_locations("place", text))
    except BlobError:
        shown = ""
    return shlex.quote(text) if shown == text.rstrip("/") else variable_in_shell(variable)


ETHER_DECIMALS, GWEI_DECIMALS = 18, 9
_LONGEST = 40
_MOST_WEI = 10**36
_WEI = 10**ETHER_DECIMALS


def wei_of(text: str, option: str, decimals: int) -> int:
    """Return an amount in wei; `decimals` belong to the unit, 18 for ether and 9 for gwei."""
    try:
        amount = Decimal(text) if len(text) <= _LONGEST else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 < amount.scaleb(decimals) <= _MOST_WEI:
        most = _MOST_WEI // 10**decimals
        raise ConfigurationError(
            f"{option} {text[:_LONGEST]}: must be a number above 0, at most {most:.0e}"
        )
    wei = amount.scaleb(decimals)
    if wei != int(wei):
        raise ConfigurationError(f"{option} {text}: must have at most {decimals} decimals")
    return int(wei)


def in_ether(wei: int) -> str:
    """Return a readable amount of wei."""
    return f"{wei / _WEI:.6g} ETH" if wei >= _WEI // 1_000_000 or wei == 0 else f"{wei} wei"


KeyFile = Annotated[list[Path], Option("--keystore", help="Keystore (encrypted key).")]
KeyPassword = Annotated[
    Path | None, Option("--password-file", help="File with the keystore's password. Default: ask.")
]

MAX_KEYSTORE_BYTES = 100_000
MAX_COST = 2**30  # product of the numbers of kdfparams; 2**26 are usual


@dataclass(frozen=True, slots=True)
class SenderOptions(options.NodeOptions):
    """A node, and the account that signs there."""

    keystore: Annotated[
        list[Path] | None,
        f"Encrypted key of the sender on a node. Default: {KEY_VARIABLE}, which holds the key.",
        Option(envvar="CMFL_KEYSTORE", callback=options.for_a_node),
    ] = None
    password_file: Annotated[
        Path | None,
        "File with the keystore's password, for a node. Default: ask.",
        Option(callback=options.for_a_node),
    ] = None
    confirmations: Annotated[
        int | None,
        "Blocks after a transaction's block before it counts, on a node. Default: 0.",
        Option(min=0, max=1000, callback=options.for_a_node),
    ] = None

    def __post_init__(self) -> None:
        """Reject several keys at once: a command signs with one."""
        _ = self.key_file

    @property
    def key_file(self) -> Path | None:
        """The keystore; None for the key in the environment."""
        return only_keystore(self.keystore) if self.keystore else None

    @contextmanager
    def chain(self, url: str, chain_id: int) -> Iterator[RpcChain]:
        from ledger.chain.rpc.rpc_chain import RpcChain

        key = private_keys(self.keystore or [], self.password_file)[0]
        with RpcChain(url, key, chain_id=chain_id, settings=self.settings()) as node:
            try:
                yield node
            except TransactionRefusedError as error:
                source = self.key_file or f"the variable {KEY_VARIABLE}"
                message = f"{error} (the account is that of {source})"
                raise TransactionRefusedError(message) from error

    def settings(self) -> RpcSettings:
        from ledger.chain.rpc.node import RpcSettings

        return RpcSettings(confirmations=self.confirmations or 0)

    def address(self) -> str | None:
        """Return the account's address, as far as it is known without a password."""
        if self.key_file is None:
            return environment_address()
        return keystore_address(read_keystore(self.key_file))


@dataclass(frozen=True, slots=True)
class CappedSenderOptions(SenderOptions):
    """A node, and the account that signs there for limited fees."""

    max_fee: options.MaxFee = None
    max_tip: options.MaxTip = None

    def settings(self) -> RpcSettings:
        settings = SenderOptions.settings(self)
        if self.max_fee is not None:
            fee = wei_of(self.max_fee, "--max-fee", GWEI_DECIMALS)
            tip = min(fee, settings.max_tip_per_gas_wei)
            settings = replace(settings, max_fee_per_gas_wei=fee, max_tip_per_gas_wei=tip)
        if self.max_tip is not None:
            tip = wei_of(self.max_tip, "--max-tip", GWEI_DECIMALS)
            if tip > settings.max_fee_per_gas_wei:
                raise ConfigurationError(
                    f"--max-tip {self.max_tip}: must be at most the fee cap, which includes it"
                )
            settings = replace(settings, max_tip_per_gas_wei=tip)
        return settings


def private_keys(keystores: Sequence[Path], password_file: Path | None) -> list[bytes]:
    """Return the keys in keystores, or the environment's; a missing password is asked for."""
    if not keystores:
        return [environment_key()]
    return [keystore_key(keystore, password_file) for keystore in keystores]


def only_keystore(keystores: Sequence[Path]) -> Path:
    """Return the keystore of a command that signs with one key."""
    if len(keystores) > 1:
        named = ", ".join(str(keystore) for keystore in keystores)
        raise ConfigurationError(
            f"--keystore is given {len(keystores)} times ({named}); give one key"
        )
    return keystores[0]


def keystore_key(keystore: Path, password_file: Path | None) -> bytes:
    """Return the private key in a keystore; the password is asked for if no file has it."""
    from eth_account import Account

    content = read_keystore(keystore)
    if password_file is None:
        password, source = asked_password(), "typed"
    else:
        password, source = read_text(password_file).rstrip("\r\n"), f"in {password_file}"
    try:
        return bytes(Account.decrypt(content, password))
    except (  # of a keystore that was written by hand
        *(ValueError, LookupError, TypeError, AttributeError, RecursionError),
        *(OverflowError, MemoryError, NotImplementedError),
    ) as error:
        if "MAC mismatch" in str(error):
            account = keystore_address(content)
            of = "" if account is None else f" of account {account}"
            raise ConfigurationError(
                f"--keystore {keystore}: the password {source} is wrong for this keystore{of} "
                "(MAC mismatch)"
            ) from error
        raise ConfigurationError(f"--keystore {keystore}: is not a keystore ({error})") from error


def read_keystore(path: Path) -> dict[str, Any]:
    """Return the JSON of a keystore."""
    with naming(f"--keystore {path}: not JSON", ValueError):
        content = parse_json(read_text(path))
    crypto = content.get("crypto", content.get("Crypto")) if isinstance(content, dict) else None
    if not isinstance(crypto, dict):
        raise ConfigurationError(f"--keystore {path}: is not a keystore; it has no object 'crypto'")
    costs = crypto.get("kdfparams")
    numbers = costs.values() if isinstance(costs, dict) else ()
    if prod(number for number in numbers if isinstance(number, int)) > MAX_COST:
        raise ConfigurationError(f"--keystore {path}: its kdfparams take too long: {costs}")
    return dict(content)


def keystore_address(content: dict[str, Any]) -> str | None:
    """Return the account that a keystore names; None if it names none."""
    try:
        return eip55(str(content.get("address")))
    except ChainError:
        return None


def environment_address() -> str | None:
    """Return the account of the key in the environment; None if there is no key."""
    is_set = os.environ.get(KEY_VARIABLE)
    return checksum(KeySigner(environment_key()).address) if is_set else None


def asked_password(question: str = "Password of the keystore") -> str:
    """Return a password that is typed at a terminal, unseen."""
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
    """Return the private key in the environment; an error does not show it."""
    text = os.environ.get(KEY_VARIABLE, "")
    try:
        key = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        key = b""
    if len(key) != 32 or not 0 < int.from_bytes(key) < GROUP_ORDER:
        raise ConfigurationError(
            f"a node needs a sender; give --keystore, or 32 bytes in hex in {KEY_VARIABLE}"
        )
    return key


def read_text(path: Path) -> str:
    """Return the text of a keystore or password, also through a pipe as of `<(pass show key)`."""
    try:
        with path.open("rb") as file:
            _warn_if_shared(path, os.fstat(file.fileno()).st_mode)
            data = file.read(MAX_KEYSTORE_BYTES + 1)
        if len(data) > MAX_KEYSTORE_BYTES:
            raise ConfigurationError(f"{path} is over {MAX_KEYSTORE_BYTES} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error


@cache
def _warn_if_shared(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
        _log.warning(
            "%s has mode %o, so that other accounts may read it: chmod 600 %s",
            *(path, stat.S_IMODE(mode), shlex.quote(str(path))),
        )


DEFAULT_WORKER = Path("cmfl-worker")

WorkerFolderPath = Annotated[
    Path,
    "Folder used only by this worker: journal, own updates, status.",
    Option("--folder", envvar="CMFL_WORKER_FOLDER"),
]


@dataclass(frozen=True, slots=True)
class ParticipantOptions:
    """The node, the contract, the shared storage, and what a participant has on its machine."""

    rpc_url: Annotated[
        str | None,
        # Eager: the limits of fees ask whether it is there.
        Option(help="URL of a JSON-RPC node.", envvar=URL_VARIABLE, is_eager=True),
    ] = None
    chain_id: Annotated[
        int | None,
        "Expected chain id of the node.",
        Option(min=1, max=2**64 - 1, envvar="CMFL_CHAIN_ID"),
    ] = None
    contract: Annotated[
        str | None,
        "Address of the run's contract.",
        Option(envvar="CMFL_CONTRACT", callback=options.contract_address),
    ] = None
    blobs: Annotated[
        str | None,
        Option(help="Location of all published blobs: a folder or a URL.", envvar=BLOBS_VARIABLE),
    ] = None
    mailbox: Annotated[
        str | None,
        Option(help="Mailbox (folder or URL). Default: with the blobs.", envvar=MAILBOX_VARIABLE),
    ] = None
    keystore: Annotated[
        list[Path] | None,
        f"Encrypted key of a client; may be repeated. Default: {KEY_VARIABLE} (one key).",
        Option(envvar="CMFL_KEYSTORE"),
    ] = None
    password_file: Annotated[Path | None, "Password file of all keystores. Default: ask."] = None
    data: Annotated[Path | None, "Location of the training data on this machine."] = None
    setting: Annotated[
        list[str] | None,
        Option("--set", help="section.key=value for this machine, such as machine.workers."),
    ] = None
    folder: WorkerFolderPath = DEFAULT_WORKER
    confirmations: Annotated[
        int | None,
        "Blocks after a block before it counts as final. Default: the chain's final blocks.",
        Option(min=0, max=1000),
    ] = None
    allow_predictable_seeds: options.AllowPredictableSeeds = False
    allow_unknown_creation: Annotated[
        bool, "Accept a contract whose creation code is not checkable."
    ] = False

    def target(self, *settings: str) -> WorkerTarget:
        """Return the run's place for a worker, with more settings before the given ones."""
        from clients.worker.process import WorkerTarget

        url, chain_id, contract, blobs = self.rpc_url, self.chain_id, self.contract, self.blobs
        if url is None or chain_id is None or contract is None or blobs is None:
            needed = ("rpc_url", "chain_id", "contract", "blobs")
            missing = next(name for name in needed if getattr(self, name) is None)
            raise ConfigurationError(f"--{missing.replace('_', '-')} is required; see --help")
        return WorkerTarget(
            *(url, chain_id, contract, blobs, self.mailbox or blobs),
            data=self.data,
            settings=(*settings, *(self.setting or ())),
            confirmations=self.confirmations,
            allow_unknown_creation=self.allow_unknown_creation,
            allow_predictable_seeds=self.allow_predictable_seeds,
        )
