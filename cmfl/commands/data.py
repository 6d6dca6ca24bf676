"""`cmfl data` and `cmfl flower`: files of data sets, and projects of Flower."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.console import AsJson, command_line, print_json, print_line
from cmfl.commands.options import expand_groups
from cmfl.commands.sender import keystore_key, only_keystore
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.datasets.registry import DataContents


_MOST_SHOWN = 20
"""Classes that are listed one by one; --json has all."""

_OF_OWN_DATA = ("features", "outputs", "about", "notes")

data_app = typer.Typer(help="Data sets: check and fetch their files.", no_args_is_help=True)

Files = Annotated[Path, typer.Argument(metavar="PATH", help="The data file or folder.")]
DataSetName = Annotated[
    str | None,
    typer.Option("--dataset", help="The data set; recognised from the files by default."),
]


@data_app.command("check")
def check(
    path: Files,
    dataset: DataSetName = None,
    glove: Annotated[Path | None, typer.Option(help="Word vectors to check with the data.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="data.options.label=species and others."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Read all files as a run would, and say what they contain; the first fault is exit code 2.

    An owner's own file is checked with --dataset own and the form that the run declares, --set
    data.options.shape=[...] and others; its digest takes the owner's key: `cmfl data digest`.
    """
    from clients.datasets.registry import verify_files

    options = {}
    if setting:
        from clients.configuration.parsing import data_options

        options = data_options(tuple(setting))
    contents = verify_files(path, dataset, glove, options)
    if json:
        found = asdict(contents)
        if not contents.about:  # a data set of this project: its names and outputs are fixed
            found = {key: found[key] for key in found if key not in _OF_OWN_DATA}
        print_json({"dataset": contents.dataset, "sound": True} | found)
        return
    print_line(f"{path}: {contents.dataset}, all files are valid")
    for line in (*_lines(contents), *contents.about):
        print_line(line)
    for note in contents.notes:
        print_line(f"note: {note}")


@data_app.command("digest")
@expand_groups
def digest(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The owner's samples.")],
    configured: ConfigurationOptions,
    keystore: Annotated[
        list[Path] | None,
        typer.Option(help="The owner's encrypted key, which determines the salt."),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="Of the keystore; else asked for.")
    ] = None,
    salt: Annotated[
        str | None, typer.Option(help="Salt of the owner's samples, 32 bytes in hex.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print the salted digest of an owner's samples, as `cmfl register --data` registers it.

    The settings of the run declare the form of the samples. The salt comes from the owner's key, or
    is given. The run document has the digest in `experiment.data.digests`, under its `data_root`.
    """
    from clients.configuration.loading import samples_with_salt
    from clients.datasets.own_samples import salt_of
    from ledger.chain.addresses import checksum
    from ledger.protocol.encoding import to_hex
    from ledger.protocol.signing import KeySigner, data_salt

    if (salt is None) == (not keystore):
        raise ConfigurationError(
            "give the one secret of the digest: --keystore with the owner's key, or --salt"
        )
    if password_file is not None and salt is not None:
        raise ConfigurationError("--password-file has no effect with --salt")
    if not configured.has_source:
        raise ConfigurationError("give the settings of the run: --config or --preset")
    configuration = configured.load()
    client = None
    if salt is not None:
        secret = salt_of(salt, "--salt")
    else:
        signer = KeySigner(keystore_key(only_keystore(keystore or []), password_file))
        client, secret = checksum(signer.address), data_salt(signer)
    count, value = samples_with_salt(configuration, path, secret)
    if json:
        print_json({"client": client, "samples": count, "data": value})
        return
    print_line(to_hex(value))


@data_app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="The data set.")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The new folder.")],
    json: AsJson = False,
) -> None:
    """Fetch a data set's files from the Hugging Face hub, or from HF_ENDPOINT, into a new folder.

    No other command uses the network for data.
    """
    from clients.datasets.data_set import fetch as fetch_files
    from clients.datasets.registry import data_set_named

    data_set = data_set_named(name)
    if data_set.hub is None:
        raise ConfigurationError(f"data set {name!r} is not on the hub")
    files = fetch_files(data_set.hub, destination)
    if json:
        print_json({"dataset": name, "files": [str(file) for file in files]})
        return
    for file in files:
        print_line(f"{file} ({file.stat().st_size:,} bytes)")
    print_line(f"check with: {command_line('data', 'check', destination)}")


def _lines(contents: DataContents) -> list[str]:
    """Return sentences about the samples, their split and their classes."""
    form = " x ".join(map(str, contents.shape))
    samples = f"{contents.samples:,} samples" + (f" of shape {form}" if form else "")
    if contents.clients is not None:
        samples += f", of {contents.clients:,} clients"
    if contents.test is not None:
        samples += f"; train {contents.train:,}, test {contents.test:,}"
    counts = contents.per_class
    if len(counts) <= _MOST_SHOWN:
        shown = ", ".join(f"{label}: {count:,}" for label, count in counts.items())
    else:
        rarest, commonest = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        shown = (
            f"from {counts[rarest]:,} (class {rarest}) to {counts[commonest]:,} (class {commonest})"
        )
    return [samples, f"samples of {len(counts):,} classes: {shown}"]


flower_app = typer.Typer(
    help="Projects of Flower in whose rounds a committee decides.", no_args_is_help=True
)


@flower_app.callback()
def flower() -> None:
    """Projects of Flower in whose rounds a committee decides."""


@flower_app.command("new")
@expand_groups
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the project.")],
    options: ConfigurationOptions,
) -> None:
    """Write a project that flwr run runs: a ServerApp, a ClientApp and the run's settings.

    SuperNodes train; the ServerApp's process has all clients' keys, and the home of the run.
    """
    from cmfl.flower import write_project

    configuration = options.load()
    write_project(folder, configuration)
    clients = configuration.protocol.clients
    print_line(f"{folder}: a project of Flower with {clients} clients")
    print_line(
        f"run it with: FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_TELEMETRY_ENABLED=0 "
        f"flwr run {quote(str(folder))} --stream --federation-config num-supernodes={clients}"
    )
