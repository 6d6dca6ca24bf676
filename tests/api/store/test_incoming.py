"""What comes piece by piece has its name once it is whole and right, and leaves nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.store.receiver import IncomingFile
from ledger.io.home import Home
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError

if TYPE_CHECKING:
    from pathlib import Path

DATA = b"what comes"


def incoming(folder: Path, pieces: tuple[bytes, ...], size: int = len(DATA)) -> IncomingFile:
    file = IncomingFile(folder, sha256(DATA), size)
    for piece in pieces:
        file.write(piece)
    return file


def test_the_right_bytes_get_their_name(tmp_path: Path) -> None:
    target = tmp_path / "ab" / "abcd"
    file = incoming(tmp_path, (DATA[:3], b"", DATA[3:]))
    assert not target.exists()
    file.finish(target)
    file.discard()
    assert target.read_bytes() == DATA
    assert not any((tmp_path / "incoming").iterdir())


def test_other_bytes_get_none(tmp_path: Path) -> None:
    target = tmp_path / "ab" / "abcd"
    for pieces, said in (((DATA[:-1],), "1 bytes are missing"), ((DATA[::-1],), "another sha256")):
        file = incoming(tmp_path, pieces)
        with pytest.raises(EncodingError, match=said):
            file.finish(target)
        file.discard()
    file = incoming(tmp_path, (DATA,))
    with pytest.raises(EncodingError, match="more bytes than were announced"):
        file.write(b"!")
    file.discard()
    assert [path.name for path in tmp_path.rglob("*")] == ["incoming"]


def test_what_somebody_removes_meanwhile_gets_no_name(tmp_path: Path) -> None:
    # Whoever comes to a home alone removes what is unfinished in it, and what comes then is a part.
    home, target = Home(tmp_path), tmp_path / "ab" / "abcd"
    home.blobs.mkdir()
    file = incoming(home.blobs, (DATA[:3],))
    with home.writing():
        pass
    file.write(DATA[3:])
    with pytest.raises(OSError, match="was removed meanwhile"):
        file.finish(target)
    file.discard()
    assert not target.exists()
    assert not any((home.blobs / "incoming").iterdir())
