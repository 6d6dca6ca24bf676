"""`cmfl witness`: cosign the checkpoints of logs that take nothing back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import print_line
from cmfl.commands.interrupts import until_interrupted
from cmfl.commands.sender import KeyFile, KeyPassword, keystore_key, only_keystore
from cmfl.commands.service_options import AllowedHosts

if TYPE_CHECKING:
    from ledger.transparency.notes import SigningKey

app = typer.Typer(
    help="Cosign the checkpoints of logs that take nothing back.", no_args_is_help=True
)

WitnessName = Annotated[
    str, typer.Option("--name", help="Name of the witness's key, such as witness.example.org.")
]


@app.command("key")
def key(name: WitnessName, keystore: KeyFile, password_file: KeyPassword = None) -> None:
    """Print the public key of a witness, for policies.

    It is derived from the keystore's, for this name alone.
    """
    print_line(str(_witness_key(name, keystore, password_file).verifier))


@app.command("serve")
def serve(
    name: WitnessName,
    keystore: KeyFile,
    folder: Annotated[Path, typer.Option(help="Folder of the witness's state.")],
    log: Annotated[
        list[str],
        typer.Option(
            metavar="VKEY",
            help="Public key of a log to witness, as cmfl log key prints it; may be repeated.",
        ),
    ],
    password_file: KeyPassword = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8701,
    allowed_host: AllowedHosts = None,
) -> None:
    """Cosign checkpoints of logs over HTTP, as c2sp.org/tlog-witness has it.

    A checkpoint is cosigned only if it continues the newest one of its log. Never restore the
    folder from a backup: a witness that forgets has to get a new key. There is no TLS: use a proxy
    on an open network.
    """
    from api.http.server import serve_app
    from api.transparency.server import create_witness
    from ledger.io.folders import sole_process
    from ledger.transparency.notes import KeyUse, parse_vkey
    from ledger.transparency.witness_folder import WitnessFolder

    logs = [parse_vkey(each, KeyUse.NOTE) for each in log]
    signer = _witness_key(name, keystore, password_file)
    with sole_process(folder, "witness.lock"), until_interrupted():
        state = WitnessFolder(folder, logs, signer, time.time)
        serve_app(
            create_witness(state),
            host,
            port,
            lambda url: print_line(f"{url} is the witness {signer.verifier}, until Ctrl-C"),
            allowed_host or (),
        )


def _witness_key(name: str, keystore: list[Path], password_file: Path | None) -> SigningKey:
    from ledger.transparency.notes import KeyUse, SigningKey, require_key_name

    require_key_name(name)
    secret = keystore_key(only_keystore(keystore), password_file)
    return SigningKey.derived(secret, KeyUse.COSIGNATURE, name)
