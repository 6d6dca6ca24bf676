"""Packed experiments: `NAME.tar.xz` holds NAME.jsonl and the folder NAME as they are on disk.

Rows compress to a tenth. What is loose on disk goes before what is packed.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ledger.io.home import read_file
from ledger.protocol.errors import ConfigurationError

SUFFIX = ".tar.xz"
MAX_UNPACKED_BYTES = 8 * 2**30
"""Limit of the files that are put on disk: xz packs a gigabyte of one byte into 150 kB."""


def archive_path(out: Path, experiment: str) -> Path:
    """Return the path of an experiment's archive in the folder of the rows."""
    return out / f"{experiment}{SUFFIX}"


def read_stored(out: Path, name: str, max_bytes: int) -> bytes:
    """Return a file of an experiment, loose or packed.

    Args:
        name: path of the file from there; it begins with the experiment's name.
        max_bytes: one more is read at most, by which a caller knows what is too large.
    """
    archive = archive_path(out, PurePosixPath(name).parts[0].removesuffix(".jsonl"))
    try:
        return read_file(out / name, max_bytes)
    except FileNotFoundError:
        if not archive.is_file():
            raise
    try:
        # The rows come first, and what follows is not unpacked for them.
        with tarfile.open(archive, "r|xz") as packed:
            for member in packed:
                if member.name == name:
                    content = packed.extractfile(member)
                    if content is None:
                        raise FileNotFoundError(f"{name} in {archive} is no file")
                    return content.read(max_bytes + 1)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ConfigurationError(f"{archive}: cannot be unpacked: {error}") from error
    raise FileNotFoundError(f"{archive} has no {name}")


def pack(out: Path, experiment: str) -> Path:
    """Move an experiment's loose rows and run folders into its archive; the same bytes each time.

    Of a run only the files of its folder are stored, its configuration and report: a home below it
    is of a cell that was cut off, which is played anew.
    """
    rows, folder, archive = (
        out / f"{experiment}.jsonl",
        out / experiment,
        archive_path(out, experiment),
    )
    files = [rows, *sorted(path for path in folder.glob("*/*") if path.is_file())]
    temporary = archive.with_suffix(".part")
    with tarfile.open(temporary, "w:xz", preset=9) as packed:
        for path in files:
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
    archive, rows = archive_path(out, experiment), f"{experiment}.jsonl"
    if (out / rows).exists() or not archive.is_file():
        return
    with TemporaryDirectory(prefix=f"{experiment}-", dir=out) as made:
        folder = Path(made)
        _unpack_into(folder, archive, experiment)
        files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        # The rows last: if they are there, so is everything else.
        for path in sorted(files, key=lambda each: each == Path(rows)):
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).replace(out / path)


def _unpack_into(folder: Path, archive: Path, experiment: str) -> None:
    try:
        with tarfile.open(archive, "r|xz") as packed:
            left = MAX_UNPACKED_BYTES
            for member in packed:
                left -= member.size
                _unpack_member(packed, member, folder, experiment, left)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ConfigurationError(f"{archive}: cannot be unpacked: {error}") from error


def _unpack_member(
    packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, experiment: str, left: int
) -> None:
    if left < 0:
        raise tarfile.TarError(f"holds more than {MAX_UNPACKED_BYTES} bytes")
    # By hand: Python before 3.11.4 knows no filter against links and paths that lead elsewhere.
    path = PurePosixPath(member.name)
    is_own = path.parts[:1] in {(experiment,), (f"{experiment}.jsonl",)} and ".." not in path.parts
    content = packed.extractfile(member) if is_own and member.isreg() else None
    if content is None:
        raise tarfile.TarError(f"{member.name!r} is no file of {experiment}")
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    with (folder / path).open("wb") as file:
        shutil.copyfileobj(content, file)
