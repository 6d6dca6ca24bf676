"""The rows of an experiment: one JSON line for each cell, trial and choice, appended whole.

Figures and reports are made of these rows alone. A resumed experiment cuts off the half line that a
killed process left; any other invalid line is refused. Loose rows on disk go before packed ones.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from pathlib import Path, PurePosixPath
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic asks for it before Python 3.12

from clients.experiments import definition as definitions
from clients.experiments.definition import Definition, MethodKindName
from ledger.audit.report import AuditOutcome
from ledger.io.home import DISK, Disk, read_file
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import PROTOCOL_VERSION

SUFFIX = ".tar.xz"
MAX_HEADER_BYTES = 2**16
MAX_UNPACKED_BYTES = 8 * 2**30  # on disk: xz packs a gigabyte of one byte into 150 kB


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if not member.isreg() and member.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {member.size} bytes")  # tarfile reads it whole
        return member


@contextmanager
def _unpacking(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive, "r|xz", tarinfo=_Member) as packed:
            yield packed
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
        raise ConfigurationError(f"{archive} cannot be unpacked: {error}") from error


def read_stored(out: Path, name: str, max_bytes: int) -> bytes:
    """Return a file, loose or packed; of a larger one, a byte more than the limit."""
    archive = out / f"{PurePosixPath(name).parts[0].removesuffix('.jsonl')}{SUFFIX}"
    try:
        return read_file(out / name, max_bytes)
    except FileNotFoundError:
        if not archive.is_file():
            raise
    # The rows come first, and what follows is not unpacked for them.
    with _unpacking(archive) as packed:
        for member in packed:
            content = packed.extractfile(member) if member.name == name else None
            if content is not None:
                return content.read(max_bytes + 1)
    raise FileNotFoundError(f"{archive} has no file {name}")


def pack(out: Path, experiment: str) -> Path:
    """Move loose rows and run folders into the archive; the same rows make the same bytes."""
    rows, folder = out / f"{experiment}.jsonl", out / experiment
    archive = out / f"{experiment}{SUFFIX}"
    temporary = archive.with_suffix(".part")
    with tarfile.open(temporary, "w:xz", preset=9) as packed:
        for path in [rows, *sorted(path for path in folder.glob("*/*") if path.is_file())]:
            member = tarfile.TarInfo(path.relative_to(out).as_posix())
            member.size = path.stat().st_size
            with path.open("rb") as content:
                packed.addfile(member, content)
    temporary.replace(archive)
    rows.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    return archive


def unpack(out: Path, experiment: str) -> None:
    """Put packed rows and run folders back on disk, where there are no loose rows."""
    archive, rows = out / f"{experiment}{SUFFIX}", f"{experiment}.jsonl"
    if (out / rows).exists() or not archive.is_file():
        return
    with TemporaryDirectory(prefix=f"{experiment}-", dir=out) as made:
        folder, left = Path(made), MAX_UNPACKED_BYTES
        with _unpacking(archive) as packed:
            for member in packed:
                left -= member.size
                if left < 0:
                    raise tarfile.TarError(f"holds more than {MAX_UNPACKED_BYTES} bytes")
                # By hand: Python before 3.11.4 has no filter against links and foreign paths.
                path = PurePosixPath(member.name)
                is_own = path.parts[:1] in {(experiment,), (rows,)} and ".." not in path.parts
                content = packed.extractfile(member) if is_own and member.isreg() else None
                if content is None:
                    raise tarfile.TarError(f"{member.name!r} is not a file of {experiment}")
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with (folder / path).open("wb") as file:
                    shutil.copyfileobj(content, file)
        files = [each.relative_to(folder) for each in folder.rglob("*") if each.is_file()]
        # The rows last: if they are there, so is everything else.
        for file_path in sorted(files, key=lambda each: each == Path(rows)):
            (out / file_path).parent.mkdir(parents=True, exist_ok=True)
            (folder / file_path).replace(out / file_path)


LAST_ROUNDS = 5
"""Measured rounds at the end whose mean accuracy is a cell's final one: single rounds are noisy."""
MAX_ROWS_BYTES = 1 << 28
DECIMALS = 6  # decimals of measured numbers in rows
Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**53)]
PerRound: TypeAlias = tuple[float | None, ...]  # None where not measured, or not finite
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@with_config(_STRICT)
class Traffic(TypedDict, total=False):
    """Bytes of a run; `recorded_traffic` makes them."""

    model: int
    busiest: int
    phases: dict[str, int]
    sent: int
    received: int
    requests: int
    by_round: list[int]
    clients: list[int]
    client_sent: list[int]
    client_received: list[int]


@with_config(_STRICT)
class StepSizes(TypedDict):
    """Error and bound of Theorem 1 under one rule for the step sizes."""

    error: list[float | None]
    bound: list[float | None] | None
    constants: dict[str, float | None] | None
    terms: dict[str, float] | None


@with_config(_STRICT)
class Theorem(TypedDict):
    """Theorem 1 on the path of a run; see `benchmarks.paper.theorem.play`."""

    mu: float
    smoothness: float
    gamma: float
    optimal_value: float
    optimal_accuracy: float
    heterogeneity: float
    local_steps: int
    best_committee: list[int]
    step_sizes: dict[str, StepSizes]


@with_config(_STRICT)
class Extra(TypedDict, total=False):
    """Sizes of a cell's rounds, and what its kind alone has."""

    committee: Count
    trainers: Count
    participants: Count
    theorem: Theorem


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSeconds:
    """Seconds of a cell on the machine that ran it; None for a part that was not measured.

    `wall` includes loading the data. `scoring` is for distances; without a committee it is the rest
    of the rounds: attacks, and making models. `ledger` is the rest of the rounds of CMFL.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    wall: float
    cpu: float
    training: float | None = None
    scoring: float | None = None
    evaluation: float | None = None
    ledger: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEvidence:
    """A cell's run on a chain; report and configuration are paths from the folder of the rows."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    chain_id: int
    address: str
    head: str
    verdict: AuditOutcome
    report: str
    configuration: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    cell: str
    experiment: str
    method: str
    condition: str
    axes: dict[str, str]
    seed: int
    digest: str
    learning_rate: float
    protocol: int | None = None
    seconds: CellSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow(_Played):
    """The result of one cell; `docs/reference/experiments.md` has its values."""

    row: Literal["cell"] = "cell"
    number: int | None
    kind: MethodKindName
    rounds: Annotated[int, Field(ge=1)]
    accuracy: PerRound
    loss: PerRound
    training_loss: PerRound
    backdoor_success: PerRound
    floor: float | None
    final: float | None
    malicious_accepted: float | None
    malicious_trained: tuple[Count, ...]
    malicious_members: tuple[Count, ...] | None
    malicious_aggregated: tuple[Count, ...]
    accepted_honest: float | None
    times_aggregated: tuple[Count, ...]
    samples: Annotated[tuple[Count, ...], Field(min_length=1)]
    malicious: tuple[Count, ...]
    attack: str | None = None
    client_accuracy: PerRound | None
    bytes: Traffic = field(default_factory=Traffic)
    ledger: ChainEvidence | None = None
    extra: Extra = field(default_factory=Extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow(_Played):
    """The result of one learning rate for a method, with a seed that is never reported."""

    row: Literal["tuning"] = "tuning"
    factor: float
    final: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """The learning rate of all cells of a method, and the mean accuracy of each factor tried."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    row: Literal["choice"] = "choice"
    experiment: str
    method: str
    factor: float
    finals: dict[str, float]
    seeds: tuple[int, ...]
    digest: str


Row: TypeAlias = CellRow | TrialRow | ChoiceRow
_ROW: TypeAdapter[Row] = TypeAdapter(Annotated[Row, Field(discriminator="row")])


@dataclass(frozen=True, slots=True)
class ExperimentRows:
    """All rows of one file by their kind, each in the order of the file."""

    cells: tuple[CellRow, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    choices: tuple[ChoiceRow, ...] = ()
    definition: Definition | None = None


def read_rows(path: Path) -> ExperimentRows:
    """Return the whole rows of a file or of its archive; none where there is neither."""
    rows: list[Row] = []
    lines: dict[tuple[object, ...], int] = {}
    for number, line in enumerate(_read(path)[0].splitlines(), start=1):
        where = f"{path}, line {number}"
        row = _row(where, line)
        if row.experiment != path.stem:
            raise ConfigurationError(f"{where}: is a row of experiment {row.experiment[:80]!r}")
        # No row may count twice: neither its name, nor the place at which its numbers count.
        keys: list[tuple[object, ...]] = [(row.row, row.method)]
        if not isinstance(row, ChoiceRow):
            factor = row.factor if isinstance(row, TrialRow) else None
            place = (row.method, row.condition, *sorted(row.axes.items()), row.seed, factor)
            keys = [(row.row, row.cell), (row.row, *place)]
        for key in keys:
            if key in lines:
                raise ConfigurationError(
                    f"{where}: repeats line {lines[key]}; remove one of the two lines"
                )
            lines[key] = number
        rows.append(row)
    return ExperimentRows(
        tuple(row for row in rows if isinstance(row, CellRow)),
        tuple(row for row in rows if isinstance(row, TrialRow)),
        tuple(row for row in rows if isinstance(row, ChoiceRow)),
    )


def read_experiments(folder: Path, experiment: str | None = None) -> dict[str, ExperimentRows]:
    """Return rows and definition of one experiment, a name or a TOML, or of all with rows."""
    known, stored = definitions.names(), {}
    if experiment is not None:
        stored[definitions.name_of(experiment)] = experiment
    elif folder.is_dir():
        for path in folder.iterdir():
            if path.name.endswith((".jsonl", SUFFIX)):
                name = path.name.removesuffix(".jsonl").removesuffix(SUFFIX)
                stored[name] = name
    rows = {}
    for name, source in sorted(stored.items()):
        is_defined = source in known or source.endswith(definitions.TOML)
        definition = definitions.definition_named(source) if is_defined else None
        rows[name] = replace(read_rows(folder / f"{name}.jsonl"), definition=definition)
    rows = {name: of for name, of in rows.items() if of.cells}
    if not rows:
        raise ConfigurationError(
            f"{folder} has no rows{f' of {experiment}' if experiment else ''}; create them with "
            f"cmfl experiment run {experiment or 'NAME'}"
        )
    return rows


def sorted_rows(rows: Mapping[str, ExperimentRows]) -> dict[str, ExperimentRows]:
    """Return experiments with cells by number and name, cells in the order of their definitions."""
    experiments = {name: of for name, of in rows.items() if of.cells}
    ordered = sorted(
        experiments, key=lambda name: definitions.order_of(name, rows[name].cells[0].number)
    )
    return {name: replace(rows[name], cells=_sorted(rows[name])) for name in ordered}


def _sorted(experiment: ExperimentRows) -> tuple[CellRow, ...]:
    known: dict[str, Sequence[str]] = {}
    if (of := experiment.definition) is not None:
        known = {f"axis {axis.name}": [point.label for point in axis.values] for axis in of.axes}
        known |= {"method": [method.name for method in of.methods]}
        known |= {"condition": [condition.name for condition in of.conditions]}

    def order(what: str, name: str) -> tuple[int, str]:
        # Unknown names come last, in alphabetical order.
        names = known.get(what, [])
        return (names.index(name) if name in names else len(names), name)

    def key(cell: CellRow) -> tuple[object, ...]:
        labels = [order(f"axis {axis}", label) for axis, label in cell.axes.items()]
        return (order("condition", cell.condition), labels, order("method", cell.method), cell.seed)

    return tuple(sorted(experiment.cells, key=key))


def append_row(path: Path, row: Row, disk: Disk = DISK) -> None:
    """Add a row, and return once it survives a power cut."""
    disk.append(path, encode_row(row))
    disk.sync([path])


def cut_torn_line(path: Path, disk: Disk = DISK) -> bool:
    """Remove the half line that a killed process left at the end; return whether there was one."""
    whole, torn = _read(path)
    if not torn:
        return False
    disk.write_whole(path, whole)
    return True


def encode_row(row: Row) -> bytes:
    """Return a row as a line of the file."""
    return f"{json.dumps(asdict(row), sort_keys=True, allow_nan=False)}\n".encode()


def round_values(values: Iterable[float | None]) -> PerRound:
    """Return numbers as rows keep them: rounded, and None for what is not finite."""
    return tuple(rounded(value) for value in values)


def rounded(value: float | None) -> float | None:
    """Return a number as rows keep it; None for none, or for one that is not finite."""
    return round(value, DECIMALS) if value is not None and isfinite(value) else None


def final_of(accuracy: Sequence[float | None]) -> float | None:
    """Return the mean of the last measured rounds; None where none was measured."""
    measured = [value for value in accuracy if value is not None][-LAST_ROUNDS:]
    return round(fmean(measured), DECIMALS) if measured else None


def _read(path: Path) -> tuple[bytes, bytes]:
    try:
        data = read_stored(path.parent, path.name, MAX_ROWS_BYTES)
    except FileNotFoundError:
        return b"", b""
    if len(data) > MAX_ROWS_BYTES:
        raise ConfigurationError(f"{path} is over {MAX_ROWS_BYTES} bytes")
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _row(where: str, line: bytes) -> Row:
    try:
        row = _ROW.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{where}: not a row ({place}: {first['msg']})") from error
    if not isinstance(row, ChoiceRow) and row.protocol != PROTOCOL_VERSION:
        played = "an earlier version" if row.protocol is None else f"version {row.protocol}"
        raise ConfigurationError(
            f"{where}: a row of {played} of the protocol, and this program reads rows of version "
            f"{PROTOCOL_VERSION}; run the experiment again, or use the program of that version"
        )
    if isinstance(row, CellRow):
        hostile = [f"malicious_{part}" for part in ("trained", "aggregated", "members")]
        for name in ("accuracy", "loss", "training_loss", "backdoor_success", *hostile):
            values = getattr(row, name) or ()
            if len(values) != row.rounds and (values or name != "malicious_members"):
                raise ConfigurationError(
                    f"{where}: not a row; {name} has {len(values)} numbers for {row.rounds} rounds"
                )
    return row
