"""A simulated run from its arguments to its last round; the command and `cmfl.run` share it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from hashlib import sha256
from json import dumps
from multiprocessing.util import Finalize
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Unpack

from cmfl.arguments import CODE, checked, reference
from cmfl.display import tracking
from cmfl.keywords import RunKeywords
from cmfl.recorded import Run
from cmfl.tracking import TrackingSession, audited_in_place, in_words, logged, require_apart
from cmfl.where import RUN, OpenNode, Target, made_if_needed
from ledger.claims import EarlyStop
from ledger.io.home import DISK, Home
from ledger.protocol.errors import ConfigurationError, ParametersError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration
    from clients.datasets.own_data import Data
    from clients.runs.flower import Nodes
    from clients.runs.metrics import RoundMetrics
    from clients.runs.open_run import OpenedRun


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run after its last round: `address` is None in memory, `stop` if all rounds were played."""

    name: str
    address: str | None
    round: int
    rows: tuple[RoundMetrics, ...]
    head: Digest
    stop: EarlyStop | None
    tracked: Mapping[str, str]


def play(
    target: Target,
    configuration: Configuration,
    go_on: Callable[[OpenedRun], list[RoundMetrics]],
    warn: Callable[[str], None],
    *,
    create: bool = True,
    open_node: OpenNode | None = None,
    accept_rollback: bool = False,
    nodes: Nodes | None = None,
) -> PlayedRun:
    """Begin or resume a run, and track it; `create` makes home and chain if they are missing."""
    from clients.runs.open_run import open_memory_run, open_run

    name, home = target.run or RUN, target.home
    require_apart(configuration.track, home)
    trackers, new_chain_id = TrackingSession(configuration.track, warn), configuration.chain_id()
    with ExitStack() as stack:
        if configuration.machine.ledger == "memory" and nodes is None:
            chain_id = new_chain_id if target.chain_id is None else target.chain_id
            stack.enter_context(target.own_folder())
            opened = stack.enter_context(
                open_memory_run(home, name, configuration, chain_id=chain_id)
            )
            tracked = stack.enter_context(logged(opened, home, trackers))
        else:
            how: dict[str, Any] = {"accept_rollback": accept_rollback}
            chain = stack.enter_context(
                target.writer(open_node, create=create, new_chain_id=new_chain_id, **how)
            )
            blobs = target.blobs()
            run = open_run(home, name, configuration, chain, blobs, nodes=nodes, **how)
            opened = stack.enter_context(run)
            verdict = partial(in_words, partial(audited_in_place, opened, chain, blobs))
            tracked = stack.enter_context(logged(opened, home, trackers, verdict))
        rows, state = tuple(go_on(tracked)), opened.ledger.state()
        address = None if opened.manifest is None else opened.manifest.address
        stop, places = tracked.stop_watch().stop, trackers.places
        return PlayedRun(name, address, state.round, rows, state.head, stop, places)


@checked
def run(
    preset: str | Path | Mapping[str, object] | None = None,
    *,
    home: str | Path | None = None,
    name: str = "run",
    model: str | type | Callable[..., object] | Mapping[str, object] | None = None,
    data: Data | str | Path | Callable[..., object] | Mapping[str, object] | None = None,
    attack: str | Callable[..., object] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    settings: Mapping[str, object] | None = None,
    **keywords: Unpack[RunKeywords],
) -> Run:
    """Play a simulated run to its last round, and return it as it was recorded.

    All clients are in this process, each with its own key; every decision goes through the contract
    on a chain in the home, so that `cmfl.audit` can recompute it.

    Args:
        preset: the settings to start from: a name (`cmfl settings presets`), the path of a TOML
            file, or a dict of what such a file would have; "digits" if not given.
        home: folder of chain, blobs and files, made if need be. Without it the run is in a
            temporary folder, which is removed when this Python process ends (`Run.save` copies it).
        name: name of the run in its home.
        model: a built-in name, `file.py:Class`, a class of `torch.nn.Module`, or a function that
            returns a module.
        data: a built-in name, the path of a file, `cmfl.Data`, a Hugging Face dataset, or a
            function that returns `cmfl.Data`. There are as many clients as `cmfl.Data` names, and
            else those of `clients`.
        attack: attack of malicious clients: a built-in name, `file.py:function`, or a function
            `(own, colluders, rng) -> update` of arrays of shapes (d,), (k, d) and (d,), float32.
            30% of the clients attack, unless `malicious_rate` is set.
        resume: True to resume the interrupted run of this name, with its own settings. Name its
            code besides this program's again (`model=Net`): no code runs because a home names it.
        progress: True for a bar or lines, False for nothing, None for a bar at a terminal or in a
            notebook.
        settings: further settings by full name, as in `{"data.name": "digits"}`.
        **keywords: settings by the last part of their names where these are of one setting alone
            (`malicious_rate=0.3`, `rounds=10`, `seed=7`), or tables (`protocol={"rounds": 10}`).
            `distance`, how members compare updates in strategies 1 and 2, may be a function
            `(update, references) -> distances` of shapes (d,), (C, d) and (C,).

    Raises:
        ConfigurationError: an argument is wrong: one sentence names it, and nothing is written.
        CmflError: the run cannot be played.

    Code and data that are Python objects are bound by digest like files. The code of objects that a
    script or notebook defines is written to the folder `code` of the home, data to `data`, so that
    run and audit can be repeated.
    """
    from clients.configuration.parsing import rule_sources
    from clients.runs.run_folder import require_new

    parts = Parts(model, data, attack, keywords.pop("distance", None))
    given = {**(settings or {}), **keywords}
    with opened_home(home) as folder:
        target = Target(folder, name)
        Home(folder).run(name)  # refuses a wrong name first
        if resume:
            configuration = _recorded(target, parts, preset, given)
            _play(target, configuration, create=False, progress=progress)
            return Run(target, name, rule_sources(configuration))
        values = _base_values(preset)
        apply_keywords({}, given)  # refuses a wrong name before anything is written
        with made_if_needed(Home(folder)), _inputs_removed(folder, name):
            configuration = _checked(values, parts, folder, given)
            require_new(folder, name)
            _play(target, configuration, create=True, progress=progress)
        return Run(target, name, rule_sources(configuration))


def _base_values(preset: str | Path | Mapping[str, object] | None) -> dict[str, Any]:
    from clients.configuration.parsing import plain_values

    if isinstance(preset, Mapping):
        values: dict[str, Any] = {}
        apply_keywords(values, preset)
        return values
    if not isinstance(preset, str | Path | None):
        raise ConfigurationError(f"preset = {preset!r:.80}: must be {PRESET_RULE}")
    return plain_values(path=preset) if isinstance(preset, Path) else plain_values(preset)


def _checked(
    values: dict[str, Any], parts: Parts, folder: Path, given: Mapping[str, object]
) -> Configuration:
    from clients.configuration.loading import checked
    from clients.configuration.parsing import imply_file

    if parts.attack is not None:
        apply_keywords(values, {"malicious_rate": USUAL_RATE})
    put_parts(values, parts, folder)
    imply_file(values, apply_keywords(values, given))
    try:
        return checked(values)
    except ParametersError as error:
        raise ConfigurationError(str(error)) from error


def _recorded(
    target: Target,
    parts: Parts,
    preset: str | Path | Mapping[str, object] | None,
    given: Mapping[str, object],
) -> Configuration:
    from clients.runs.run_folder import recorded_configuration

    if preset is not None or any(not key.startswith("machine.") for key in given):
        raise ConfigurationError(
            "resume=True uses the run's settings; only machine.* and its code can be given"
        )
    named = {
        "model.name": parts.model,
        "data.name": parts.data,
        "malice.attack": parts.attack,
        "protocol.distance": parts.distance,
    }
    values = {
        key: reference(key, part, target.home) for key, part in named.items() if part is not None
    }
    settings = tuple(f"{key}={dumps(value)}" for key, value in {**given, **values}.items())
    return recorded_configuration(target.home, target.run or RUN, settings)


def _play(
    target: Target, configuration: Configuration, *, create: bool, progress: bool | None
) -> None:
    with tracking(f"{target.run}, rounds", shown=progress) as show:

        def on_row(row: RoundMetrics) -> None:
            note = "" if row.accuracy is None else f"accuracy {row.accuracy:.3f}"
            show(row.round, configuration.protocol.rounds, note)

        def warn(sentence: str) -> None:
            warnings.warn(sentence.removeprefix("warning: "), stacklevel=2)

        play(target, configuration, lambda run: run.go_on(on_row), warn, create=create)


@contextmanager
def _inputs_removed(folder: Path, name: str) -> Iterator[None]:
    """Remove the code and data that were written for a run which then could not be started."""
    folders = [folder / CODE, folder / DATA]
    before = {path for each in folders if each.is_dir() for path in each.iterdir()}
    try:
        yield
    except BaseException:
        if not Home(folder).run(name).configuration.exists():
            for each in folders:
                for path in set(each.iterdir() if each.is_dir() else ()) - before:
                    path.unlink(missing_ok=True)
                if each.is_dir() and not any(each.iterdir()):
                    each.rmdir()
        raise


_PREFIX = "cmfl-"
_LOCK = "in-use"


@contextmanager
def opened_home(path: str | Path | None) -> Iterator[Path]:
    """Yield a home's folder; a temporary one for None, removed on failure or when Python ends."""
    if path is None:
        folder = _new_folder()
        try:
            yield folder / "home"
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return
    folder = Path(path)
    # Not Path.exists, which fails for a name that is too long.
    if os.path.lexists(folder) and not folder.is_dir():
        raise ConfigurationError(f"home {folder}: exists, but is not a folder")
    yield folder


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed with the context."""
    folder = _new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=_folder_of_process(os.getpid(), tempfile.gettempdir())))


@cache
def _folder_of_process(process: int, place: str) -> Path:  # noqa: ARG001 - a key of the cache
    """Make a process's folder for temporary ones, and remove folders of ended processes."""
    for folder in Path(place).glob(f"{_PREFIX}*"):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    new = folder / f"{_LOCK}.new"
    # Held until the process ends, however it ends.
    fcntl.flock(os.open(new, os.O_CREAT | os.O_WRONLY, 0o600), fcntl.LOCK_EX)
    new.rename(folder / _LOCK)  # never to be seen unlocked
    # Not atexit, which the processes of a pool do not heed. Not of a child that was forked later.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=0)
    return folder


def _is_abandoned(folder: Path) -> bool:
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def apply_keywords(values: dict[str, Any], keywords: Mapping[str, object]) -> set[str]:
    """Put keyword arguments into a configuration's values, and return their full names.

    A keyword is a flat or a full name, or a section with a table. None takes a setting back.
    """
    from clients.configuration.parsing import put_setting

    settings = full_names(keywords)
    for name, value in settings.items():
        put_setting(values, name, plain_value(value))
    return set(settings)


def full_names(keywords: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of keyword arguments by their full names, tables key by key."""
    from clients.configuration.schema import Configuration

    sections = {name.partition(".")[0] for name in Configuration.names() if "." in name}
    names: dict[str, object] = {}
    for name, value in keywords.items():
        if name not in sections:
            names[full_name(name)] = value
        elif isinstance(value, Mapping):
            names |= {full_name(f"{name}.{key}"): single for key, single in value.items()}
        else:
            raise ConfigurationError(
                f"{name} is a section of settings; must be a dict (given: {value!r:.80})"
            )
    return names


def full_name(name: str) -> str:
    """Return the full name of a setting, `section.key`, or of a key in its table."""
    from clients.configuration.parsing import unknown_setting
    from clients.configuration.schema import Configuration

    if not isinstance(name, str):
        raise ConfigurationError(f"{name!r:.80}: the name of a setting must be a text")
    known = [*Configuration.names()]
    if any(f"{name}.".startswith(f"{each}.") for each in known):
        return name
    places = [each for each in known if each.endswith(f".{name}")]
    if not places:
        raise ConfigurationError(unknown_setting(name))
    if len(places) > 1:
        listed = ", ".join(places)
        raise ConfigurationError(
            f"{name} is the name of several settings, {listed}; write the full name, as in "
            f'settings={{"{places[0]}": ...}}'
        )
    return places[0]


def plain_value(value: object) -> object:
    """Return a value as TOML has it: numbers of NumPy, enumerations, paths and tuples as theirs."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(single) for key, single in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(single) for single in value]
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


USUAL_RATE = 0.3  # share of the clients that attack, where an attack is given without a share
PRESET_RULE = "a preset's name, the path of a TOML file, or a dict of settings"
DATA = "data"  # folders of a home with the code and the data that were given as objects


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a run as the caller gave them: names, paths, objects, or None."""

    model: Any = None
    data: Any = None
    attack: Any = None
    distance: Any = None


def put_parts(values: dict[str, Any], parts: Parts, folder: Path) -> None:
    """Put the parts of a run into the values of its configuration, by section and key."""
    for name, part in (("malice.attack", parts.attack), ("protocol.distance", parts.distance)):
        if part is not None:
            apply_keywords(values, {name: reference(name, part, folder)})
    model = parts.model
    if isinstance(model, Mapping):
        named = {"name": _model_reference(model["name"], folder)} if "name" in model else {}
        apply_keywords(values, {"model": {**model, **named}})
    elif model is not None:
        # Options are of one model, and not of another that takes its place.
        values["model"] = {"name": _model_reference(model, folder)}
    if parts.data is not None:
        _put_data(values, parts.data, folder)


def preset_text(name: str, preset: object, folder: Path) -> str:
    """Return an experiment's text for a preset, a name, a .toml path, or a dict of settings."""
    from clients.configuration.loading import checked
    from clients.configuration.parsing import TOML

    if isinstance(preset, Path) and preset.suffix != TOML:
        raise ConfigurationError(f"{name} = {str(preset)!r:.80}: must end in {TOML}")
    if isinstance(preset, str | Path):
        return str(preset)
    if not isinstance(preset, Mapping):
        raise ConfigurationError(f"{name} = {preset!r:.80}: must be {PRESET_RULE}")
    values: dict[str, Any] = {}
    apply_keywords(values, preset)
    data = checked(values).to_toml().encode()
    path = folder.absolute() / CODE / f"preset-{sha256(data).hexdigest()[:12]}{TOML}"
    DISK.write_whole(path, data)
    return str(path)


def _model_reference(model: object, folder: Path) -> str:
    if hasattr(model, "named_parameters") and not isinstance(model, type):
        kind = type(model).__name__
        raise ConfigurationError(
            f"model.name: is a module; give its class, model={kind}, as each process makes its own"
        )
    return reference("model.name", model, folder)


def _put_data(values: dict[str, Any], data: object, folder: Path) -> None:
    from clients.configuration.parsing import imply_file
    from clients.datasets.own_data import Data

    if type(data).__module__.partition(".")[0] == "datasets":  # of Hugging Face, not imported
        data = Data.from_dataset(data)
    elif isinstance(data, Mapping):
        imply_file(values, apply_keywords(values, {"data": dict(data)}))
        return
    path = Path(data) if isinstance(data, str | Path) else None
    # A text is a path of data, and neither a name nor `file.py:function`.
    is_path = path is not None and (
        isinstance(data, Path) or path.exists() or (":" not in str(data) and path.suffix != "")
    )
    # Options and partition are of one data set, and not of another that takes its place.
    if isinstance(data, Data):
        path = data.save(folder.absolute() / DATA)
        values["data"] = {"name": "file", "path": str(path), "options": data.options()}
        if data.client is not None:
            apply_keywords(values, {"protocol.clients": len(set(data.client.tolist()))})
    elif is_path:
        values["data"] = {"name": "file", "path": str(data)}
    elif hasattr(data, "columns") and hasattr(data, "to_numpy"):
        raise ConfigurationError(
            "data: is a data frame; give cmfl.Data(x=..., y=...) with its arrays, or save a "
            "file with frame.to_csv('mine.csv', index=False)"
        )
    else:
        values["data"] = {"name": reference("data.name", data, folder)}
