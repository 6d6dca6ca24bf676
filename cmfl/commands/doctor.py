"""`cmfl doctor`: installed parts, working parts, and the state of a home and its node."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer import Option

from cmfl.commands import FAILED, sender
from cmfl.commands.console import AsJson, counting, print_result, progress
from cmfl.commands.options import KEY_VARIABLE, HomeFolder, NodeOptions
from cmfl.where import HOME, Target
from ledger.actors.journal import count_statements, require_journal
from ledger.chain.contract.abi import artifact
from ledger.chain.contract.ledger import read_run_manifest, require_unplayed, was_in_memory
from ledger.chain.embedded.chain_store import require_one_name
from ledger.chain.embedded.writing import read_note
from ledger.chain.round_ledger import ends_after
from ledger.claims import claimed_run
from ledger.distances import fallback_reason
from ledger.io.home import RUN_NAME, WRITING, Home, RunPaths
from ledger.protocol import types
from ledger.protocol.encoding import keccak256
from ledger.protocol.errors import BlobError, BlobMissingError, ChainError, CmflError, EncodingError
from ledger.protocol.ledger_state import LedgerStage, RoundDecided
from ledger.protocol.signing import KeySigner, recover
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration


Check: TypeAlias = tuple[str, Callable[[], str]]
"""What is checked, and what says in a sentence what it found, or raises what is wrong.

The error says what to do.
"""


def machine_checks(home: Path, asked_port: int | None, *, loads_torch: bool) -> list[Check]:
    """Return the checks of installation and machine; a port that is asked for must be free."""
    return [
        ("python", platform.python_version),
        ("signatures", _signatures),
        ("contract artefact", _artefact),
        ("distances", _distances),
        ("torch", partial(_torch, is_loaded=loads_torch)),
        ("environment class", partial(_environment, is_loaded=loads_torch)),
        ("port", lambda: _port(asked_port)),
        ("disk", lambda: _disk(home)),
    ]


def _signatures() -> str:
    signer = KeySigner(keccak256(b"PUBLIC TEST KEY of cmfl doctor"))
    digest = keccak256(b"a message")
    if recover(digest, signer.sign(digest)) != signer.address:
        raise CmflError("a signature does not recover to its signer; reinstall coincurve")
    return "secp256k1 signs and recovers"


def _artefact() -> str:
    from cmfl.commands.chain import differing_sources

    for name in differing_sources(artifact()):
        raise CmflError(
            f"contracts/{name} is not the source of the artefact; compile it again, or "
            "restore the source"
        )
    return f"{artifact().compiler}, {len(artifact().runtime)} bytes, sources match"


def _distances() -> str:
    reason = fallback_reason()
    slower = f"NumPy, about five times slower: {reason}"
    return slower if reason else "compiled for this processor"


def _torch(*, is_loaded: bool) -> str:
    """Return the version from the package's metadata: to load torch takes two seconds."""
    installed = _torch_version()
    if installed is None:
        return "not installed: audit and serve work, run and deploy do not"
    if find_spec("torch") is None:
        raise CmflError(f"{installed} is installed without its files; reinstall torch")
    try:
        ctypes.CDLL("libcuda.so.1")  # the driver, without which torch finds no GPU either
    except OSError:
        return f"{installed}, no GPU"
    if not is_loaded:
        return f"{installed}, with a GPU driver; --deep loads torch and names the GPU"
    from clients.devices import cards_described

    return f"{installed}, {cards_described()}"


def _torch_version() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _environment(*, is_loaded: bool) -> str:
    if _torch_version() is None:
        return "none: without torch, this machine cannot train or repeat training"
    if not is_loaded:
        return "not read: --deep loads torch and prints it"
    try:
        from clients.training.engine_factory import environment_here
    except ImportError as error:
        raise CmflError(f"torch cannot be imported: {error!s:.300}") from error
    from clients.devices import available_caps

    here = replace(environment_here("plain", "cpu"), path="plain or lockstep")
    caps = ", ".join(available_caps()) or "omitted only, because this processor has one set"
    return f"{here}; machine.isa can be {caps}"


def _port(asked: int | None) -> str:
    port = asked or 8000
    if not is_port_taken(port):
        return f"{port} is free"
    sentence = f"{port} is in use; give cmfl serve another port with --port"
    if asked is not None:
        raise CmflError(sentence)
    return sentence


def is_port_taken(port: int) -> bool:
    """Return whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _disk(home: Path) -> str:
    folder = next(path for path in (home.absolute(), *home.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < 100_000_000:
        raise CmflError(f"only {free // 1_000_000} MB are free at {folder}; free some space")
    return f"{free / 1e9:.1f} GB free"


def training_checks(
    preset: str | None, config: Path | None, settings: tuple[str, ...]
) -> list[Check]:
    """Return the checks of how clients would train, if a configuration is named."""
    if preset is None and config is None and not settings:
        return []

    from clients.configuration.loading import load
    from clients.configuration.tested_regime import regime_warnings, risk_sentence

    def about(say: Callable[[Configuration], str]) -> Callable[[], str]:
        return lambda: say(load(preset, config, settings))

    def risk(configuration: Configuration) -> str:
        return risk_sentence(configuration.parameters(dimension=1))

    def regime(configuration: Configuration) -> str:
        if not (warnings := regime_warnings(configuration)):
            return "within the settings in which the rules were attacked"
        outside = "outside the settings in which the rules were attacked"
        return f"WARNING: {outside}: {'; '.join(warnings)}"

    return [("training", about(_planned)), ("committee", about(risk)), ("attacks", about(regime))]


def _planned(configuration: Configuration) -> str:
    from clients.runs.population import populate
    from clients.training.lockstep.plan import plan

    population, device = populate(configuration), configuration.machine.device
    training = configuration.training
    planned = plan(population.model, population.data, training, device)
    sentence, asked = f"{planned.path} path: {planned.reason}", configuration.training.path
    if asked != "auto":
        sentence = f"{asked} path, as configured; auto would select the {sentence}"
    return "; ".join([sentence, *planned.layers])


def _node(where: Target) -> str:
    from ledger.chain.rpc.node import Requirement

    with where.node_reader() as node:
        head = node.head()
        node.require_suitable(needs_block_hash=False)
        note = node.unmet_requirements().get(Requirement.BLOCK_HASH)
    found = f"chain {node.chain_id}, block {head.number}, 0x{head.hash.hex()}"
    return found if note is None else f"{found}; {note}"


def _account(where: Target, keystore: Path | None) -> str:
    if keystore is None:
        address, source = sender.environment_address(), f"the variable {KEY_VARIABLE}"
        if address is None:
            return f"none; to send transactions, give --keystore or set {KEY_VARIABLE}"
    else:
        address, source = sender.keystore_address(sender.read_keystore(keystore)), str(keystore)
        if address is None:
            return f"{keystore} does not name its account; decrypt it to find the account"
    if where.rpc_url is None:
        return f"{address} from {source}"
    with where.node_reader() as node:
        balance = node.balance_of(address)
    if balance == 0:
        raise CmflError(
            f"{address} from {source} has 0 ETH on chain {node.chain_id}; send some, unless gas "
            "is free on this chain"
        )
    return f"{address} from {source} has {sender.in_ether(balance)}"


_NAME = re.compile(types.BARE)


def check_blobs(blobs: FolderBlobs, *, deep: bool) -> str:
    """Return what is in the folder, in a sentence; `deep` reads and hashes each blob."""
    sizes: dict[str, int] = {}
    unfinished = others = 0
    for path in sorted(blobs.folder.glob("*/*")):
        if path.name.startswith(WRITING):
            unfinished += 1
        elif not _NAME.fullmatch(path.name) or path.parent.name != path.name[:2]:
            others += 1
        else:
            sizes[path.name] = path.stat().st_size
    damaged = [f"blob {name} is empty" for name, size in sizes.items() if size == 0]
    damaged += _damaged(blobs, sizes) if deep else []
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        raise BlobError(
            f"{damaged[0]}{more}; restore the blob from a copy, or remove it (audits are then "
            "incomplete)"
        )
    parts = [f"{len(sizes)} blobs, {sum(sizes.values()) / 1e6:.1f} MB"]
    parts[0] += ", each hashed" if deep else ""
    if unfinished:
        parts.append(f"{unfinished} unfinished files, which the next writer removes")
    if others:
        parts.append(f"{others} other files, which are ignored")
    return "; ".join(parts)


def _damaged(blobs: FolderBlobs, names: Iterable[str]) -> list[str]:
    damaged = []
    with progress() as bar:
        for name in bar.track(list(names), description="blobs"):
            try:
                blobs.get(types.Digest(bytes.fromhex(name)))
            except BlobMissingError:
                continue  # a writer has put another in its place meanwhile
            except BlobError as error:
                damaged.append(str(error))
    return damaged


def home_checks(where: Target, *, deep: bool) -> list[Check]:
    """Return the checks of chain, runs, blobs and journals, in their order."""
    folder = Home(where.home).runs
    names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    runs = [RunPaths(folder / name) for name in sorted(names)]
    return [
        ("chain", lambda: _chain(where, deep=deep)),
        *((f"run {run.path.name}", partial(_run, where, run)) for run in runs),
        ("blobs", lambda: check_blobs(where.blobs(), deep=deep)),
        ("vote journals", lambda: _journals(where)),
    ]


def _chain(where: Target, *, deep: bool) -> str:
    if not where.chain_file.exists():
        _require_none_noted(where)
        return f"none yet in {where.home}"
    require_one_name(where.chain_file)
    with where.own_reader() as chain, chain.snapshot() as view:
        noted, head = view.acknowledged(), view.head()
        chain_text = f"chain {view.chain_id}, block {head.number}, 0x{head.hash.hex()}"
        if noted is not None:
            there = view.block(noted.number).hash if noted.number <= head.number else None
            if there != noted.hash:
                raise ChainError(
                    f"{chain_text} lacks block {noted.number}, 0x{noted.hash.hex()}, which "
                    "this home acknowledged. It is an old backup or damaged; restore a newer "
                    "file, or continue with cmfl run --resume --accept-rollback"
                )
        if deep:
            with counting("blocks") as show:
                view.verify(execute=True, progress=lambda number: show(number, head.number))
            chain_text += ", every block re-executed"
        if chain.wal_bytes >= 256 * 2**20:
            chain_text += (
                f"; its write-ahead log has {chain.wal_bytes // 2**20} MiB, because a reader holds "
                f"an old state; end the long-running audit or service"
            )
        return chain_text


def _require_none_noted(where: Target) -> None:
    if (noted := read_note(where.chain_file)) is not None:
        raise ChainError(
            f"{where.chain_file} is missing, but this home acknowledged block {noted.number}, "
            f"0x{noted.hash.hex()}; mount its disk, or restore the file with its -wal"
        )


def _run(where: Target, run: RunPaths) -> str:
    if not RUN_NAME.fullmatch(run.path.name):
        raise CmflError("the folder's name is not a run name; rename or remove the folder")
    if not run.manifest.exists():
        if was_in_memory(run):
            return "was on the memory ledger; it is not on a chain, and cannot be resumed"
        require_unplayed(run)
        return "has no contract yet: cmfl run --resume deploys it, or finds the one that it started"
    manifest = read_run_manifest(run)
    if where.rpc_url is None and not where.chain_file.exists():
        _require_none_noted(where)
        return f"is on chain {manifest.chain_id}; to check it, give --rpc-url"
    blobs = where.blobs()
    with where.ledger_of(manifest) as ledger:
        if ledger is None:
            return f"is on chain {manifest.chain_id}, which was not checked"
        state, deployment = ledger.state(), ledger.deployment()
        # The first model is made again by a resume.
        is_model_missing = state.model != deployment.model and not blobs.has(state.model)
        is_played_here = run.left_by_play() is not None or run.has_rows()
        ends = ends_after(ledger, 0) if is_model_missing else []
    if is_played_here:
        require_journal(run, state, manifest.domain())
        _require_claimed_head(replace(where, run=run.name))
    # Workers elsewhere may publish in another store: then none of the later models is here.
    later = {end.model for end in ends if isinstance(end, RoundDecided)}
    if is_model_missing and (is_played_here or any(map(blobs.has, later))):
        raise BlobMissingError(
            f"blob {state.model.hex()}, the model of round {state.round}, is missing; restore it "
            "from a copy. Without it, audits are incomplete, and an unfinished run cannot continue"
        )
    stage = "finished after" if state.stage is LedgerStage.FINISHED else "in"
    found = f"contract {manifest.address}, {stage} round {state.round} of {deployment.rounds}"
    if not is_played_here and (state.round > 1 or state.commitments != types.NO_DIGEST):
        found += "; its workers run it, each with a vote journal in its own folder"
    if is_model_missing:
        found += "; its blobs have no later model: the workers use another store"
    return found


def _require_claimed_head(where: Target) -> None:
    """Reject rows that the chain contradicts: a resume would reject them."""
    from cmfl.commands.runs import compare_head, head_message

    name = where.run or ""
    try:
        claimed = claimed_run(Home(where.home).run(name))
    except EncodingError:
        return  # a resume makes damaged rows again
    comparison = compare_head(where, claimed)
    if comparison.contradicts:
        raise ChainError(head_message(name, comparison))


def _journals(where: Target) -> str:
    """Return what the runs' keys have signed: without it they may sign nothing any more."""
    counts = [
        f"{path.absolute().parent.name}: {count_statements(path)} statements"
        for path in Home(where.home).journals()
    ]
    return ", ".join(counts) or f"none yet in {where.home}"


def doctor(
    home: HomeFolder = HOME,
    *,
    node: NodeOptions,
    keystore: Annotated[
        list[Path] | None, "Encrypted key to check.", Option(envvar="CMFL_KEYSTORE")
    ] = None,
    port: Annotated[
        int | None,
        Option(min=1, max=65535, help="Free port for the REST service. Default: 8000."),
    ] = None,
    deep: Annotated[bool, "Re-execute every block and hash every blob (slow)."] = False,
    preset: Annotated[str | None, "Preset whose training path to print."] = None,
    config: Annotated[Path | None, "TOML file whose training path to print."] = None,
    setting: Annotated[
        list[str] | None, "section.key=value; overrides the preset or file.", Option("--set")
    ] = None,
    json: AsJson = False,
) -> None:
    """Check the installation, the home and the node.

    The exit code is 1 if a check fails. The command never asks for a password. With --preset or
    --config, it also loads the data and prints the training path and the computation of each layer.
    """
    where, rows = node.chain_of(home), []
    key = sender.only_keystore(keystore) if keystore else None
    checks: list[Check] = [("node", lambda: _node(where))] if where.rpc_url is not None else []
    if where.rpc_url is not None or key is not None:
        checks.append(("account", lambda: _account(where, key)))
    training = training_checks(preset, config, tuple(setting or ()))
    for name, check in (
        *machine_checks(where.home, port, loads_torch=deep or bool(training)),
        *checks,
        *home_checks(where, deep=deep),
        *training,
    ):
        try:
            found, is_ok = check(), True
        except CmflError as error:
            found, is_ok = str(error)[:2_000], False
        except OSError as error:
            found, is_ok = f"{error.filename or ''}: {error.strerror or error}", False
        rows.append({"check": name, "ok": is_ok, "found": found})
    lines = [f"{'ok  ' if row['ok'] else 'FAIL'} {row['check']:18} {row['found']}" for row in rows]
    print_result(rows, lines, as_json=json)
    raise typer.Exit(0 if all(row["ok"] for row in rows) else FAILED)
