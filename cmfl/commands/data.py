"""`cmfl data` and `cmfl flower`: files of data sets, and projects of Flower."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from clients.datasets.data_set import fetch as fetch_files
from clients.datasets.own_samples import salt_of
from clients.datasets.registry import DataContents, data_set_named, verify_files
from cmfl.commands import console
from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.options import Commands
from cmfl.commands.sender import keystore_key, only_keystore
from ledger.chain.addresses import checksum
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import KeySigner, data_salt

_MOST_SHOWN = 20
"""Classes that are listed one by one; --json has all."""

_OF_OWN_DATA = ("features", "outputs", "about", "notes")

data_app = Commands()

Files = Annotated[Path, Argument(metavar="PATH", help="The data file or folder.")]
DataSetName = Annotated[
    str | None, Option("--dataset", help="The data set; recognised from the files by default.")
]


@data_app.command("check")
def check(
    path: Files,
    dataset: DataSetName = None,
    glove: Annotated[Path | None, Option(help="Word vectors to check with the data.")] = None,
    setting: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="data.options.label=species and others."),
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Read all files as a run would, and say what they contain; the first fault is exit code 2.

    An owner's own file is checked with --dataset own and the form that the run declares, --set
    data.options.shape=[...] and others; its digest takes the owner's key: `cmfl data digest`.
    """
    options = {}
    if setting:
        from clients.configuration.parsing import data_options

        options = data_options(tuple(setting))
    contents = verify_files(path, dataset, glove, options)
    if json:
        found = asdict(contents)
        if not contents.about:  # a data set of this project: its names and outputs are fixed
            found = {key: found[key] for key in found if key not in _OF_OWN_DATA}
        console.print_json({"dataset": contents.dataset, "sound": True} | found)
        return
    console.print_line(f"{path}: {contents.dataset}, all files are valid")
    notes = [f"note: {note}" for note in contents.notes]
    console.print_lines([*_lines(contents), *contents.about, *notes])


@data_app.command("digest")
def digest(
    path: Annotated[Path, Argument(metavar="FILE", help="The owner's samples.")],
    configured: ConfigurationOptions,
    keystore: Annotated[
        list[Path] | None, Option(help="The owner's encrypted key, which determines the salt.")
    ] = None,
    password_file: Annotated[Path | None, Option(help="Of the keystore; else asked for.")] = None,
    salt: Annotated[
        str | None, Option(help="Salt of the owner's samples, 32 bytes in hex.")
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Print the salted digest of an owner's samples, as `cmfl register --data` registers it.

    The settings of the run declare the form of the samples. The salt comes from the owner's key, or
    is given. The run document has the digest in `experiment.data.digests`, under its `data_root`.
    """
    from clients.configuration.loading import samples_with_salt

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
    answer = {"client": client, "samples": count, "data": value}
    console.print_result(answer, [to_hex(value)], as_json=json)


@data_app.command("fetch")
def fetch(
    name: Annotated[str, Argument(help="The data set.")],
    destination: Annotated[Path, Argument(metavar="DEST", help="The new folder.")],
    json: console.AsJson = False,
) -> None:
    """Fetch a data set's files from the Hugging Face hub, or from HF_ENDPOINT, into a new folder.

    No other command uses the network for data.
    """
    data_set = data_set_named(name)
    if data_set.hub is None:
        raise ConfigurationError(f"data set {name!r} is not on the hub")
    files = fetch_files(data_set.hub, destination)
    lines = [f"{file} ({file.stat().st_size:,} bytes)" for file in files]
    console.print_result(
        {"dataset": name, "files": [str(file) for file in files]},
        [*lines, f"check with: {console.command_line('data', 'check', destination)}"],
        as_json=json,
    )


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


flower_app = Commands()


@flower_app.callback()
def flower() -> None:
    """Projects of Flower in whose rounds a committee decides."""


@flower_app.command("new")
def new(
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder of the project.")],
    options: ConfigurationOptions,
) -> None:
    """Write a project that flwr run runs: a ServerApp, a ClientApp and the run's settings.

    SuperNodes train; the ServerApp's process has all clients' keys, and the home of the run.
    """
    from cmfl.flower import write_project

    configuration = options.load()
    write_project(folder, configuration)
    clients = configuration.protocol.clients
    console.print_line(f"{folder}: a project of Flower with {clients} clients")
    console.print_line(
        f"run it with: FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_TELEMETRY_ENABLED=0 "
        f"flwr run {quote(str(folder))} --stream --federation-config num-supernodes={clients}"
    )
