"""`cmfl data`, `cmfl model` and `cmfl flower`: files of data sets and models, and projects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from clients.datasets.data_set import fetch as fetch_files
from clients.datasets.own_samples import salt_of
from clients.datasets.published import FILES, SOURCE, make_file
from clients.datasets.registry import DataContents, data_set_named, verify_files
from cmfl.commands import console, options
from cmfl.commands.application import Commands
from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.sender import keystore_key, only_keystore
from cmfl.where import HOME, Target
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.io.home import DISK, RunPaths, is_standard_output
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.encoding import checksum, sha256, to_hex, vector_bytes, vector_from_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from ledger.protocol.signing import KeySigner, data_salt
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration


data_app = Commands()


@data_app.command("check")
def check(
    path: Annotated[Path, Argument(metavar="PATH", help="Data file or folder.")],
    dataset: Annotated[str | None, "Data set. Default: recognised from the files."] = None,
    glove: Annotated[Path | None, "Word vectors to check with the data."] = None,
    setting: Annotated[
        list[str] | None,
        "Option of the data set, such as data.options.label=species.",
        Option("--set", metavar="KEY=VALUE"),
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Read all files of a data set as a run would, and print a summary of their contents.

    The first error ends the command with exit code 2. For an owner's own file, use --dataset own
    and the run's form of the data, such as --set data.options.shape=[...].
    """
    options = {}
    if setting:
        from clients.configuration.parsing import data_options

        options = data_options(tuple(setting))
    contents = verify_files(path, dataset, glove, options)
    if not json:
        console.print_line(f"{path}: {contents.dataset}, all files are valid")
        notes = [f"note: {note}" for note in contents.notes]
        console.print_lines([*_lines(contents), *contents.about, *notes])
        return
    found = asdict(contents)
    if not contents.about:  # a data set of this project: its names and outputs are fixed
        for key in ("features", "outputs", "about", "notes"):
            del found[key]
    console.print_json({"dataset": contents.dataset, "sound": True} | found)


@data_app.command("digest")
def digest(
    path: Annotated[Path, Argument(metavar="FILE", help="File of the owner's samples.")],
    configured: ConfigurationOptions,
    keystore: Annotated[
        list[Path] | None, "Encrypted key of the owner; determines the salt."
    ] = None,
    password_file: Annotated[Path | None, "Keystore's password file. Default: ask."] = None,
    salt: Annotated[str | None, "Salt of the owner's samples, 32 bytes in hex."] = None,
    json: console.AsJson = False,
) -> None:
    """Print the salted digest of an owner's samples, as `cmfl register --data` registers it.

    The run's settings declare the form of the samples. The salt is derived from the owner's key, or
    given. The run document contains the digest in `experiment.data.digests`, under its `data_root`.
    """
    from clients.configuration.loading import samples_with_salt

    if (salt is None) == (not keystore):
        raise ConfigurationError(
            "the digest needs exactly one of --keystore (the owner's key) and --salt"
        )
    if password_file is not None and salt is not None:
        raise ConfigurationError("--password-file has no effect with --salt")
    if not configured.has_source:
        raise ConfigurationError("give the settings of the run: --config or --preset")
    configuration = configured.load()
    client, secret = None, b"" if salt is None else salt_of(salt, "--salt")
    if salt is None:
        signer = KeySigner(keystore_key(only_keystore(keystore or []), password_file))
        client, secret = checksum(signer.address), data_salt(signer)
    count, value = samples_with_salt(configuration, path, secret)
    answer = {"client": client, "samples": count, "data": value}
    console.print_result(answer, [to_hex(value)], as_json=json)


@data_app.command("fetch")
def fetch(
    name: Annotated[str, Argument(help="Data set, file of an experiment, or all.")],
    destination: Annotated[
        Path, Argument(metavar="DEST", help="Target folder; a new one for a data set of the hub.")
    ],
    source: Annotated[str, "Mirror of the sources of experiment files."] = SOURCE,
    json: console.AsJson = False,
) -> None:
    """Fetch a data set from the Hugging Face hub, or the files that experiments read.

    HF_ENDPOINT selects the hub. Experiment files are built from files on GitHub with known sha256
    digests. `all` builds the missing ones. No other command downloads data.
    """
    name = {"digits-by-writer": "digits_by_writer.npz"}.get(name, name)
    if wanted := [file for file in FILES if name in {file, "all"}]:
        lines = [make_file(file, destination, source) for file in wanted]
        files = [destination / file for file in wanted]
        then = console.command_line("experiment", "run", "NAME", data=destination)
    elif (hub := data_set_named(name).hub) is not None:
        files = [*fetch_files(hub, destination)]
        lines = [f"{file} ({file.stat().st_size:,} bytes)" for file in files]
        then = console.command_line("data", "check", destination)
    else:
        raise ConfigurationError(
            f"data set {name!r} is not on the hub; experiments read {', '.join(FILES)}"
        )
    answer = {"dataset": name, "files": [str(file) for file in files]}
    console.print_result(answer, [*lines, f"continue with: {then}"], as_json=json)


def _lines(contents: DataContents) -> list[str]:
    form = " x ".join(map(str, contents.shape))
    samples = f"{contents.samples:,} samples" + (f" of shape {form}" if form else "")
    if contents.clients is not None:
        samples += f", of {contents.clients:,} clients"
    if contents.test is not None:
        samples += f"; train {contents.train:,}, test {contents.test:,}"
    counts = contents.per_class
    shown = ", ".join(f"{label}: {count:,}" for label, count in counts.items())
    if len(counts) > 20:  # --json has all
        rarest, most = (of(counts, key=counts.__getitem__) for of in (min, max))
        shown = f"from {counts[rarest]:,} (class {rarest}) to {counts[most]:,} (class {most})"
    return [samples, f"samples of {len(counts):,} classes: {shown}"]


flower_app = Commands()


@flower_app.callback()
def flower() -> None:
    """Create a Flower project whose rounds a committee decides."""


@flower_app.command("new")
def new(
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder of the project.")],
    options: ConfigurationOptions,
) -> None:
    """Write a project for flwr run: a ServerApp, a ClientApp and the run's settings.

    SuperNodes train. The ServerApp's process holds all clients' keys and the home of the run.
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


model_app = Commands()

SAFETENSORS, PEFT = "safetensors", "peft"
FORMATS = (SAFETENSORS, PEFT)


@model_app.command("export")
def export(
    out: Annotated[Path, "Output file, replaced if it exists; with --sign or peft, a folder."],
    home: options.HomeFolder = HOME,
    run: options.RunName = None,
    round_number: Annotated[
        int | None,
        Option("--round", min=1, max=2**32 - 1, help="Round of the model. Default: the last."),
    ] = None,
    average: Annotated[
        int, Option(min=1, max=1000, help="Number of last decided models to average.")
    ] = 1,
    address: options.Address = None,
    rpc_url: options.RpcUrl = None,
    chain_id: options.ChainId = None,
    blobs: Annotated[
        str | None, "Location of the blobs, a URL or a folder. Default: the home."
    ] = None,
    form: Annotated[
        str,
        "Format: safetensors, a file of the trained tensors, or peft, a folder for PeftModel.",
        Option("--format"),
    ] = SAFETENSORS,
    make_folder: Annotated[bool, "Create the folder of --out without asking."] = False,
    sign: Annotated[
        Path | None,
        "Private key (PEM) that signs. --out is then a new folder with the model, the base "
        "of the model hf, and model.sig.",
    ] = None,
    json: console.AsJson = False,
) -> None:
    """Write the model recorded on the ledger to a file, its tensors by name and shape.

    The chain stores the file's digest, and cmfl audit checks this digest. With --format peft, the
    command writes the adapters of the model hf. With --sign, it writes a folder for cmfl verify
    attestation and for OpenSSF's model_signing verify key.

    With --average, the file contains a mean model, which has no digest on the chain. The metadata
    list the digests of the averaged models.
    """
    from clients.models.model_file import encode_model, mean_model, run_facts

    if form not in FORMATS:
        raise ConfigurationError(f"--format {form}: must be {' or '.join(FORMATS)}")
    if form == PEFT and address is not None:
        raise ConfigurationError(
            "--format peft needs the base from the run's own configuration; remove --address"
        )
    _require_folder(out, is_made=make_folder)
    if sign is not None:
        _require_signable(out, sign, average)
    where = Target(home, run, address, rpc_url, chain_id, blobs)
    with where.reader() as chain:
        ledger = where.complete_ledger(chain)
        configuration = ledger.deployment().config
        number, model, head = _named(ledger, round_number)
        models = [model] if average == 1 else _last_models(ledger, number, average)
    published = where.published()
    document = decode_run(published.get(configuration, MAX_DOCUMENT_BYTES))
    dimension = document.parameters.dimension
    vector = mean_model(
        vector_from_bytes(published.get(digest, 4 * dimension), dimension) for digest in models
    )
    named = {} if average == 1 else {"mean_of": " ".join(map(to_hex, models))}
    facts = run_facts(document, number, head) | named

    def write(path: Path) -> None:
        if form == PEFT:
            from clients.runs.bound_inputs import write_adapter

            write_adapter(vector, _inputs_of(where.run_paths(), document), document, path)
            return
        data = encode_model(vector, document.layout, facts)
        if sign is None:
            console.write_result(out, data)
        else:
            DISK.write_whole(path / "model.safetensors", data)

    _write_signed(out, sign, where, document, write) if sign else write(out)
    if not is_standard_output(out):
        size = {"parameters": dimension, "tensors": len(document.layout)}
        digest_of_model = {"sha256": sha256(vector_bytes(vector))}
        _print({"file": str(out), "says": facts, **size, **digest_of_model}, as_json=json)


@model_app.command("digest")
def digest_of_base(
    folder: Annotated[Path, Argument(help="Folder of a base of the model hf.")],
) -> None:
    """Print the digest of a base model's folder, for model.options.sha256."""
    from clients.models.model import folder_digest

    if not folder.is_dir():
        raise ConfigurationError(f"{folder}: is not a folder")
    console.print_line(folder_digest("path", folder).partition(":")[2])


@model_app.command("evaluate")
def evaluate(
    file: Annotated[Path, Argument(help="File model.safetensors written by cmfl.")],
    home: options.HomeFolder = HOME,
    run: Annotated[str, "Run that supplies data and model."] = "run",
    preset: Annotated[str | None, "Preset that supplies data and model."] = None,
    config: Annotated[Path | None, "TOML file that supplies data and model."] = None,
    setting: Annotated[
        list[str] | None, Option("--set", help="section.key=value; overrides run, preset or file.")
    ] = None,
    training_loss: Annotated[bool, "Also print the loss on all training samples."] = False,
    json: console.AsJson = False,
) -> None:
    """Load a file into its model and print accuracy and loss on the whole test set.

    The data set and the model come from a run's configuration, a preset or a file. The metadata of
    the model file are only shown. Code that a run's configuration names is not executed. To use
    such code, name your own copy, as in --set model.name=FILE.py:CLASS.
    """
    from clients.configuration.loading import is_code, load, load_recorded
    from clients.models.model_file import read_model_file
    from clients.runs.bound_inputs import quality_of
    from clients.runs.run_folder import document_of, run_folder

    settings, document = tuple(setting or ()), None
    if preset or config:
        configuration = load(preset, config, settings)
    else:
        path = run_folder(home, run).paths.configuration
        # With other settings than the places of its code they are no longer the run's own.
        document = document_of(home, run) if all(map(is_code, settings)) else None
        configuration = load_recorded(path, settings, document, only_inputs=True)
    stored = read_model_file(file)
    quality = quality_of(stored, configuration, document, training_loss=training_loss)
    measured = asdict(quality)
    if quality.perplexity is None:
        del measured["perplexity"]
    _print({"file": str(file), "says": stored.facts, **measured}, as_json=json)


def _require_signable(out: Path, key: Path, average: int) -> None:
    """Refuse a mean, a key that cannot sign, and a folder that has other files."""
    from cmfl.provenance.verify import require_key

    if average > 1:
        raise ConfigurationError(
            f"--average {average} with --sign: a mean model is not on the chain, so it cannot "
            "be signed; remove one of the two options"
        )
    require_key(key, "private")
    console.require_new(out)


def _last_models(ledger: CommitteeLedger, number: int, count: int) -> list[Digest]:
    events = [recorded.event for recorded in ledger.outcomes(number, descending=False)]
    models = [event.model for event in events if isinstance(event, RoundDecided)]
    if len(models) < count:
        raise ConfigurationError(
            f"--average {count}: must be at most {len(models)}, the models decided up to "
            f"round {number}"
        )
    return models[-count:]


def _write_signed(
    out: Path, key: Path, where: Target, document: RunDocument, write: Callable[[Path], None]
) -> None:
    from cmfl.provenance.verify import bound_base, copy_base, sign_folder

    bound = bound_base(document)
    if bound is not None and where.address is not None:
        raise ConfigurationError(
            "--sign of the model hf needs the base from the run's own configuration; remove "
            "--address"
        )
    with console.whole_folder(out) as folder:
        write(folder)
        if bound is not None:
            options = _inputs_of(where.run_paths(), document).model.options
            copy_base(Path(str(options["path"])), folder, bound)
        sign_folder(folder, key)


def _require_folder(out: Path, *, is_made: bool) -> None:
    """Ask whether a missing folder is to be made; it is made with the file."""
    console.refuse_home_file(out)
    missing = f"--out {out}: there is no folder {out.parent}"
    if is_made or out.parent.is_dir():
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{missing}; create it with --make-folder")
    if not typer.confirm(f"There is no folder {out.parent}. Make it?", err=True):
        raise ConfigurationError(f"{missing}; nothing was written")


def _inputs_of(paths: RunPaths, document: RunDocument) -> Configuration:
    """Return data and model of a home's run, without code: the home may be another user's."""
    from clients.configuration.loading import load_recorded

    return load_recorded(paths.configuration, (), document, only_inputs=True)


def _named(ledger: CommitteeLedger, round_number: int | None) -> tuple[int, Digest, Digest]:
    if round_number is None:
        state = ledger.state()
        for recorded in ledger.outcomes(1):
            newest = recorded.event
            assert isinstance(newest, RoundDecided | RoundAbandoned)
            # Not the state's head: a ban since then changes it, and no model.
            return newest.round, state.model, newest.head
        return 0, state.model, state.head
    for recorded in ledger.round_events(round_number):
        if isinstance(event := recorded.event, RoundDecided):
            return round_number, event.model, event.head
    raise ConfigurationError(f"round {round_number} was not decided, so it has no model")


def _print(facts: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        console.print_json(facts)
        return
    metadata = facts.get("says", {}).items()
    lines = {name: value for name, value in facts.items() if name != "says"}
    for name, value in (lines | {f"says {name}": value for name, value in metadata}).items():
        shown = f"{value:.4f}" if isinstance(value, float) else console.whole(value)
        console.print_line(f"{name:15} {shown}".rstrip())
