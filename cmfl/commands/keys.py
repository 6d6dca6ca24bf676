"""`cmfl keys`: keystores of clients, and their addresses."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from cmfl.commands.console import AsJson, print_json, print_line
from cmfl.commands.sender import (
    KeyFile,
    KeyPassword,
    keystore_address,
    keystore_key,
    new_password,
    only_keystore,
    read_keystore,
)
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Address

app = typer.Typer(help="Keys of clients.", no_args_is_help=True)


@app.command("new")
def new(keystore: KeyFile, password_file: KeyPassword = None, json: AsJson = False) -> None:
    """Make a new key, write its keystore, and print its address; nothing is overwritten.

    The keystore has version 3, as Ethereum's wallets and nodes use it, and only its owner can read
    it. A key whose keystore or password is lost cannot be restored.
    """
    from clients.onboarding.keystores import write_keystore
    from ledger.protocol.signing import GROUP_ORDER, KeySigner

    path = only_keystore(keystore)
    if path.exists():
        raise ConfigurationError(
            f"--keystore {path}: there is a file already, and a key is never overwritten"
        )
    password = new_password(password_file)
    key = (secrets.randbelow(GROUP_ORDER - 1) + 1).to_bytes(32)
    write_keystore(path, key, password)
    _print_address(KeySigner(key).address, path, json=json)


@app.command("show")
def show(
    keystore: KeyFile,
    password_file: KeyPassword = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Decrypt it, and sign a random challenge.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print the address of a keystore; without --prove no password is asked for."""
    path = only_keystore(keystore)
    if prove:
        _print_address(_proven(path, password_file), path, json=json, is_proven=True)
        return
    if password_file is not None:
        raise ConfigurationError("--password-file has no effect without --prove")
    named = keystore_address(read_keystore(path))
    if named is None:
        raise ConfigurationError(
            f"--keystore {path}: does not name its account; use --prove to find it"
        )
    _print_address(bytes.fromhex(named.removeprefix("0x")), path, json=json)


def _proven(keystore: Path, password_file: Path | None) -> Address:
    """Return the address that a keystore's key signs for."""
    from ledger.chain.addresses import checksum
    from ledger.protocol.signing import KeySigner, challenge_digest, recover

    signer = KeySigner(keystore_key(keystore, password_file))
    challenge = challenge_digest(secrets.token_bytes(32))
    address = recover(challenge, signer.sign(challenge))
    named = keystore_address(read_keystore(keystore))
    if named is not None and named != checksum(address):
        raise ConfigurationError(
            f"--keystore {keystore}: names account {named}, and holds the key of "
            f"{checksum(address)}"
        )
    return address


def _print_address(
    address: bytes, keystore: Path, *, json: bool, is_proven: bool | None = None
) -> None:
    from ledger.chain.addresses import checksum

    shown = checksum(address)
    if json:
        proof = {} if is_proven is None else {"is_proven": is_proven}
        print_json({"address": shown, "keystore": str(keystore)} | proof)
        return
    print_line(f"{shown} of {keystore}" + (": it signs" if is_proven else ""))
