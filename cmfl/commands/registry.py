"""`cmfl register`, `cmfl registry` and `cmfl keys`: owners' signed entries and keys."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cmfl.commands import console, sender
from cmfl.commands.application import Commands
from cmfl.commands.configuration_options import AgreedConfigurationOptions
from cmfl.commands.options import RunToMake
from cmfl.where import RUN
from ledger.io.home import is_written_into
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.parameters import MIN_ACTIVE, MINIMUM_FEDERATION
from ledger.protocol.signing import GROUP_ORDER, KeySigner, challenge_digest, recover

if TYPE_CHECKING:
    from clients.configuration.loading import Owners
    from clients.configuration.schema import Configuration
    from clients.registration import Registry


RegistryFile = Annotated[
    Path | None,
    "Registry of owners with separate keys, written by cmfl registry gather.",
    Option("--registry"),
]
MOST_FILES = 20_000

registry_app = Commands()


def register(
    keystore: sender.KeyFile,
    out: Annotated[Path, "File of the entry; an existing file is not replaced."],
    samples: Annotated[
        int | None, Option(min=1, max=2**53 - 1, help="Number of your training samples.")
    ] = None,
    data: Annotated[
        Path | None, "File of your samples, to count them and register their digest."
    ] = None,
    password_file: sender.KeyPassword = None,
    run: RunToMake = RUN,
    *,
    agreed: AgreedConfigurationOptions,
    json: console.AsJson = False,
) -> None:
    """Write your signed registry entry: address, samples, settings.

    Give the entry to the run's deployer, who uses the same settings. It contains no secret. With
    --data, it includes a salted digest of your samples; only your key determines the salt. Your
    worker uses the digest to reject other samples, and you can prove later which samples you
    trained on. The beacon is a block hash unless the settings differ.
    """
    from clients.configuration.loading import owner_samples
    from clients.registration import encode_entry, proposal_digest, signed_entry

    if not agreed.has_source:
        raise ConfigurationError("give the settings that you agree to with --config or --preset")
    path = sender.only_keystore(keystore)
    _require_new(out)
    configuration = agreed.load_shared(allow_predictable=agreed.allow_predictable_seeds)
    proposal = proposal_digest(configuration)
    signer = KeySigner(sender.keystore_key(path, password_file))
    count, digest = owner_samples(configuration, samples, data, signer)
    entry = signed_entry(signer, run, proposal, count, digest)
    console.write_result(out, encode_entry(entry))
    address = checksum(signer.address)
    fields = {"run": run, "client": address, "samples": count, "data": digest}
    gather = ("registry", "gather", out.parent)
    lines = (
        f"{out}: {address} registers for run {run} with {count} samples",
        f"settings 0x{proposal.hex()}",
        "the deployer continues with: "
        f"{console.command_line(*gather, out='registry.json', **agreed.words())}",
        f"once the entries of all owners are in {out.parent}",
    )
    console.print_result(
        fields | {"configuration": proposal, "entry": str(out)}, lines, as_json=json
    )


@registry_app.command("gather")
def gather(
    entries: Annotated[list[Path], Argument(metavar="FILES", help="Entries, or folders of them.")],
    out: Annotated[Path, "File of the registry; an existing file is not replaced."],
    agreed: AgreedConfigurationOptions,
    json: console.AsJson = False,
) -> None:
    """Check the owners' entries and combine them into one registry, ordered by address.

    Each owner can compare the registry's digest with the digest of a local copy, and later with the
    digest in the contract. With the agreed settings, the command also checks them and prints the
    command that deploys the run.
    """
    from clients.registration import combined_registry, encode_registry, read_entry

    _require_new(out)
    if not agreed.has_source and (agreed.settings or agreed.allow_predictable_seeds):
        raise ConfigurationError("the owners' settings need --config or --preset")
    files: list[Path] = []
    for path in entries:
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    if len(files) > MOST_FILES:
        raise ConfigurationError(f"{len(files)} entries are too many; at most {MOST_FILES}")
    registry = combined_registry((str(path), read_entry(path)) for path in files)
    command = None
    if agreed.has_source:
        clients = f"protocol.clients={len(registry.entries)}"
        is_allowed = agreed.allow_predictable_seeds
        configuration = agreed.load_shared(clients, allow_predictable=is_allowed)
        _require_signed("the entries", registry, configuration)
        settings = agreed.words(clients)
        command = console.command_line("deploy", registry=out, run=registry.run, **settings)
    console.write_result(out, encode_registry(registry))
    if json:
        console.print_json(_view(registry) | {"file": str(out), "command": command})
        return
    console.print_line(f"{out}: {len(registry.entries)} clients of run {registry.run}")
    _print_digests(registry)
    if command is not None:
        console.print_line(f"continue with: {command}")
    elif len(registry.entries) < MIN_ACTIVE:
        console.print_line(f"too few for a run yet: {MINIMUM_FEDERATION}")
    else:
        console.print_line(
            "with the settings (--config or --preset, and --set), it prints the next command"
        )


@registry_app.command("show")
def show_registry(
    file: Annotated[Path, Argument(metavar="FILE", help="File of a registry.")],
    json: console.AsJson = False,
) -> None:
    """Check a registry's signatures, order and digest, and list its clients."""
    from clients.registration import read_registry

    registry = read_registry(file)
    view = _view(registry)
    if json:
        console.print_json(view)
        return
    rows = [tuple(client.values()) for client in view["clients"]]
    console.print_table(f"clients of run {registry.run}", ("client", "address", "samples"), rows)
    _print_digests(registry)


def _print_digests(registry: Registry) -> None:
    console.print_line(f"registry 0x{registry.digest.hex()}", bold=True)
    console.print_line(f"settings 0x{registry.configuration.hex()}")


def agreed_owners(file: Path, run: str, configuration: Configuration) -> Owners:
    """Return the clients of a registry, who must have agreed to this run and its settings."""
    from clients.registration import read_registry

    registry = read_registry(file)
    if registry.run != run:
        raise ConfigurationError(
            f"--registry {file}: its owners signed for run {registry.run}, not for {run}"
        )
    _require_signed(f"--registry {file}", registry, configuration)
    return registry.owners


def _require_signed(where: str, registry: Registry, configuration: Configuration) -> None:
    from clients.registration import proposal_digest

    proposed = proposal_digest(configuration)
    if registry.configuration != proposed:
        raise ConfigurationError(
            f"{where}: the owners signed for settings 0x{registry.configuration.hex()}, not "
            f"for these (0x{proposed.hex()})"
        )


def _view(registry: Registry) -> dict[str, Any]:
    return {
        "run": registry.run,
        "registry": registry.digest,
        "configuration": registry.configuration,
        "clients": [
            {"client": index, "address": checksum(client.address), "samples": client.samples}
            for index, client in enumerate(registry.clients)
        ],
    }


def _require_new(out: Path) -> None:
    console.refuse_home_file(out)
    if out.exists() and not is_written_into(out):
        raise ConfigurationError(f"--out {out}: exists, and is not overwritten; name a new file")


keys_app = Commands()


@keys_app.command("new")
def new(
    keystore: sender.KeyFile, password_file: sender.KeyPassword = None, json: console.AsJson = False
) -> None:
    """Create a key, write its keystore, and print its address; no file is overwritten.

    The keystore is an Ethereum keystore, version 3. Only its owner can read the file. A key without
    its keystore and password cannot be restored.
    """
    from clients.registration import write_keystore

    path = sender.only_keystore(keystore)
    if path.exists():
        raise ConfigurationError(
            f"--keystore {path}: exists, and a key is never overwritten; name a new file"
        )
    if password_file is not None:
        password = sender.read_text(password_file).rstrip("\r\n")
    elif (password := sender.asked_password()) != sender.asked_password("The same again"):
        raise ConfigurationError("the two passwords differ; no keystore was made")
    if not password:
        raise ConfigurationError("the password is empty; no keystore was made")
    key = (secrets.randbelow(GROUP_ORDER - 1) + 1).to_bytes(32)
    write_keystore(path, key, password)
    _print_address(checksum(KeySigner(key).address), path, json=json)


@keys_app.command("show")
def show_key(
    keystore: sender.KeyFile,
    password_file: sender.KeyPassword = None,
    prove: Annotated[bool, "Decrypt the key and sign a random challenge."] = False,
    json: console.AsJson = False,
) -> None:
    """Print the address of a keystore. Only --prove asks for the password."""
    path = sender.only_keystore(keystore)
    if not prove and password_file is not None:
        raise ConfigurationError("--password-file has no effect without --prove")
    named = sender.keystore_address(sender.read_keystore(path))
    if prove:
        signer = KeySigner(sender.keystore_key(path, password_file))
        challenge = challenge_digest(secrets.token_bytes(32))
        address = checksum(recover(challenge, signer.sign(challenge)))
        if named not in {None, address}:
            raise ConfigurationError(
                f"--keystore {path}: names account {named}, and holds the key of {address}"
            )
        _print_address(address, path, json=json, is_proven=True)
    elif named is None:
        raise ConfigurationError(
            f"--keystore {path}: does not name its account; use --prove to find it"
        )
    else:
        _print_address(named, path, json=json)


def _print_address(
    address: str, keystore: Path, *, json: bool, is_proven: bool | None = None
) -> None:
    proof = {} if is_proven is None else {"is_proven": is_proven}
    answer = {"address": address, "keystore": str(keystore)} | proof
    line = f"{address} from {keystore}" + (": signature valid" if is_proven else "")
    console.print_result(answer, [line], as_json=json)
