"""Files of a run: configuration, manifest, metrics and the last model.

Replaced files are replaced as a whole, and survive a power cut. Rows of rounds are only appended: a
row lost in a power cut is computed again from the chain. A row has the head of the ledger after its
round, so that rows reveal a chain that was rolled back or replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.configuration.loading import code_named_in, load_recorded
from clients.configuration.parsing import key_and_value, plain_values
from clients.configuration.schema import Configuration
from clients.models.model_file import StoredModel, read_model_file
from ledger.chain.contract.ledger import Manifest, read_run_manifest
from ledger.chain.ports import ChainRolledBackError
from ledger.chain.round_ledger import RoundHistory, ends_after
from ledger.claims import warn_of_doubled_rows
from ledger.io.home import DISK, Disk, Home, RunPaths, read_file
from ledger.io.parsing import parse_json
from ledger.protocol import canonical
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.run import RunDocument, decode_run
from ledger.protocol.encoding import vector_from_bytes
from ledger.protocol.errors import BlobError, CmflError, ConfigurationError, EncodingError
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from ledger.protocol.training_replay import TrainingEnvironment, decode_environment
from ledger.protocol.types import PROTOCOL_VERSION, Digest
from ledger.storage.blobs import BlobReader, FolderBlobs

if TYPE_CHECKING:
    from clients.runs.metrics import Measure, RoundMetrics

    End = RoundDecided | RoundAbandoned

MAX_METRICS_BYTES = 1 << 30
MAX_ENVIRONMENTS_BYTES = 1 << 20

_MALFORMED = ArithmeticError, LookupError, ValueError, TypeError, AttributeError, CmflError
_MIXED = "unknown: the round began in another environment"


class RunFolder:
    """A run's own files."""

    def __init__(self, paths: RunPaths, disk: Disk = DISK) -> None:
        self.paths, self.disk = paths, disk

    def write_configuration(self, configuration: Configuration) -> None:
        self.disk.write_whole(self.paths.configuration, configuration.to_toml().encode())

    def metrics_lines(self) -> list[bytes]:
        try:
            return read_file(self.paths.metrics, MAX_METRICS_BYTES).splitlines(keepends=True)
        except FileNotFoundError:
            return []

    def record_environment(
        self, round_number: int, environment: TrainingEnvironment, *, is_begun: bool = False
    ) -> None:
        """Add the environment that trains from a round on, unknown for a round with commitments."""
        recorded = self.environments()
        if not recorded or recorded[-1][1] != environment:
            rows = [*recorded, (round_number, environment)]
            if is_begun:
                mixed = replace(environment, isa=_MIXED)
                rows = [*recorded, (round_number, mixed), (round_number + 1, environment)]
            lines = [f"{json.dumps({'round': n} | asdict(known))}\n" for n, known in rows]
            self.disk.write_whole(self.paths.environments, "".join(lines).encode())

    def environments(self) -> list[tuple[int, TrainingEnvironment]]:
        path = self.paths.environments
        try:
            lines = read_file(path, MAX_ENVIRONMENTS_BYTES).splitlines()
        except FileNotFoundError:
            return []
        recorded = []
        for number, line in enumerate(lines, 1):
            try:
                row = parse_json(line)
                first = row.pop("round")
                document = canonical.encode({"version": PROTOCOL_VERSION} | row)
                recorded.append((first, decode_environment(document)))
            except _MALFORMED as error:
                raise ConfigurationError(f"{path}, line {number}: is not an environment") from error
            if type(first) is not int or first < 1:
                raise ConfigurationError(
                    f"{path}, line {number}: round must be a whole number from 1"
                )
        return recorded

    def read_model(self) -> StoredModel | None:
        try:
            return read_model_file(self.paths.model)
        except (FileNotFoundError, EncodingError):
            return None


def run_folder(home: Path, name: str, disk: Disk = DISK) -> RunFolder:
    """Return the folder of a run, which need not exist."""
    return RunFolder(Home(home).run(name), disk)


def line_of(row: RoundMetrics) -> bytes:
    """Return a row as a line of the file."""
    return f"{json.dumps(asdict(row), sort_keys=True, allow_nan=False)}\n".encode()


def recorded_configuration(home: Path, name: str, settings: tuple[str, ...] = ()) -> Configuration:
    """Return a run's configuration to resume it; `machine`, `track` and own places may be set."""
    folder = run_folder(home, name)
    path = folder.paths.configuration
    if not path.exists():
        if folder.paths.manifest.exists():
            raise ConfigurationError(f"{path} is missing; restore it to resume {name!r}")
        raise ConfigurationError(f"there is no run {name!r} in {home} to resume")
    if not path.is_file():
        raise ConfigurationError(f"{path} is not a file, but a folder, a pipe or a device")
    own = code_named_in(plain_values(path=path))
    for setting in settings:
        if not setting.startswith(("machine.", "track.")) and key_and_value(setting)[0] not in own:
            raise ConfigurationError(f"--set {setting}: a resumed run keeps its configuration")
    configuration = load_recorded(path, settings, document_of(home, name))
    if configuration.machine.ledger == "memory":
        raise ConfigurationError(
            f"run {name!r} was on the memory ledger (machine.ledger in {path}), which ended with "
            f"its process: start a new run under another name"
        )
    return configuration


def document_of(home: Path, name: str) -> RunDocument | None:
    """Return the run document in a home; None for a run without a contract or that blob."""
    if not Home(home).run(name).manifest.exists():
        return None
    try:
        digest = Digest(bytes.fromhex(manifest_of(home, name).config.removeprefix("0x")))
        return decode_run(FolderBlobs(Home(home).blobs).get(digest, MAX_DOCUMENT_BYTES))
    except (BlobError, ValueError):
        return None


def require_new(home: Path, name: str) -> None:
    """Refuse the name of an existing run."""
    paths = run_folder(home, name).paths
    if paths.configuration.exists():
        # A run on the memory ledger has no manifest, and cannot be taken up.
        way = "resume it, or name another" if paths.manifest.exists() else "name another"
        raise ConfigurationError(f"{home} already has a run {name!r}; {way}")


def manifest_of(home: Path, name: str) -> Manifest:
    """Return the manifest of a run."""
    return read_run_manifest(run_folder(home, name).paths)


def restore_metrics(
    folder: RunFolder,
    measure: Measure,
    ledger: RoundHistory,
    blobs: BlobReader,
    *,
    accept_rollback: bool = False,
) -> tuple[int, ...]:
    """Make the rows agree with the chain; return rounds that cannot be evaluated any more.

    A run may have been killed before it wrote a row. With `accept_rollback`, rows of rounds that
    the chain lacks are set aside.
    """
    ends = ends_after(ledger, 0)
    lines = folder.metrics_lines()
    confirmed, strange = _sorted_out(folder.paths.metrics, lines, ends)
    if strange:
        if not accept_rollback:
            raise _rolled_back(folder, strange, ends)
        folder.disk.write_whole(folder.paths.metrics_before_rollback(), b"".join(lines))
    restored: list[bytes] = []
    missing: list[int] = []
    model = ledger.deployment().model
    for end in ends:
        model = end.model if isinstance(end, RoundDecided) else model
        line = confirmed.get(end.round) or _made(measure, ledger, blobs, end.round, model)
        if line is None:
            missing.append(end.round)
        else:
            restored.append(line)
    if restored != lines:
        folder.disk.write_whole(folder.paths.metrics, b"".join(restored))
    return tuple(missing)


def require_rows(folder: RunFolder, ledger: RoundHistory) -> None:
    """Reject a chain without a round of the rows; see `restore_metrics`."""
    ends = ends_after(ledger, 0)
    _, strange = _sorted_out(folder.paths.metrics, folder.metrics_lines(), ends)
    if strange:
        raise _rolled_back(folder, strange, ends)


def _sorted_out(
    path: Path, lines: Sequence[bytes], ends: Sequence[End]
) -> tuple[dict[int, bytes], list[tuple[int, str]]]:
    heads = {f"0x{end.head.hex()}": end.round for end in ends}
    confirmed, strange, doubled = dict[int, bytes](), list[tuple[int, str]](), list[int]()
    for line in lines:
        row = _row(line)
        if row is None:
            continue  # cut off or damaged: it is made again
        number, head = row
        if head not in heads:
            strange.append((number, head))
        elif number in confirmed:
            doubled.append(number)
        elif heads[head] == number:
            confirmed[number] = line
    warn_of_doubled_rows(path, doubled)
    return confirmed, strange


def _row(line: bytes) -> tuple[int, str] | None:
    try:
        row: Any = parse_json(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    number, head = row.get("round"), row.get("head")
    return (number, head) if type(number) is int and isinstance(head, str) else None


def _made(
    measure: Measure, ledger: RoundHistory, blobs: BlobReader, number: int, model: Digest
) -> bytes | None:
    if not measure.gauge.is_due(number):
        return line_of(measure.row(ledger, number, None))
    dimension = measure.parameters.dimension
    try:
        vector = vector_from_bytes(blobs.get(model, 4 * dimension), dimension)
    except (BlobError, EncodingError):
        return None
    return line_of(measure.row(ledger, number, vector))


def _rolled_back(
    folder: RunFolder, strange: Sequence[tuple[int, str]], ends: Sequence[End]
) -> ChainRolledBackError:
    number, head = strange[0]
    has = f"0x{ends[number - 1].head.hex()}" if 0 < number <= len(ends) else "no such round"
    return ChainRolledBackError(
        f"{folder.paths.metrics} has round {number} with head {head[:66]}, the chain {has} "
        f"({len(ends)} rounds have ended there): a restored copy, a damaged file or a "
        f"reorganisation has taken rounds back, or it is another chain. Put back the newest copy, "
        f"or go on from here with --accept-rollback, which plays these rounds again and keeps the "
        f"rows in {folder.paths.metrics_before_rollback().name}"
    )
