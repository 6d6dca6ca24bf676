"""The container of a bundle: read by tar, written whole, and refused with a byte changed."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.audit.proofs.container import (
    BLOCK,
    MANIFEST,
    BundleFile,
    container_parts,
    open_bundle,
    write_container,
)
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import BlobError, BlobMissingError, EncodingError
from ledger.storage.blobs import MemoryBlobs
from tests.audit.proofs.mutations import FUZZ

AT_ONCE = 100
CASES = 7_700 * FUZZ


def small() -> bytes:
    blobs = MemoryBlobs()
    digests = [blobs.put(data) for data in (b"", b"one", bytes(BLOCK), b"x" * 1_025)]
    return b"".join(container_parts(b'{"round": 1}\n', digests, blobs))


def test_a_bundle_can_be_unpacked_and_checked_with_sha256sum() -> None:
    with tarfile.open(fileobj=io.BytesIO(small())) as archive:
        members = archive.getmembers()
        assert members[0].name == MANIFEST
        for member in members[1:]:
            found = archive.extractfile(member)
            assert found is not None
            assert member.name == f"blobs/{sha256(found.read()).hex()}"
            assert (member.mode, member.mtime, member.uid) == (0o644, 0, 0)
    assert len(members) == 5


def test_a_bundle_yields_its_manifest_and_its_blobs_only() -> None:
    found = BundleFile(io.BytesIO(small()))
    assert found.manifest == b'{"round": 1}\n'
    assert found.get(sha256(b"one")) == b"one"
    assert found.has(sha256(b""))
    assert list(found.digests()) == sorted(found.digests())
    with pytest.raises(BlobMissingError, match="is not in the bundle"):
        found.get(sha256(b"other"))
    with pytest.raises(BlobError, match="larger than the 2 bytes"):
        found.get(sha256(b"one"), 2)


def test_a_file_that_changes_after_it_was_opened_is_noticed() -> None:
    file = io.BytesIO(small())
    found = BundleFile(file)
    file.seek(file.getvalue().index(b"one"))
    file.write(b"two")
    with pytest.raises(BlobError, match="has changed since the bundle was opened"):
        found.get(sha256(b"one"))


@settings(max_examples=CASES // AT_ONCE)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_container_with_a_changed_byte_is_read(seed: int) -> None:
    rng, data = random.Random(seed), small()
    whole = set(BundleFile(io.BytesIO(data)).digests())
    for _ in range(AT_ONCE):
        place, other = rng.randrange(len(data)), rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                changed = data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)])
                changed += data[place + 1 :]
            case 1:
                changed = data[:place]
            case 2:
                changed = data[:place] + bytes(rng.choice((1, BLOCK))) + data[place:]
            case _:
                first, last = sorted((place, other))
                changed = data[:first] + data[last:]
        if changed == data:
            continue
        try:
            found = BundleFile(io.BytesIO(changed))
        except EncodingError:
            continue
        # A whole part may be lost, of which its blob is then missing; and what the manifest's own
        # bytes say is the document's business. Nothing else can be there.
        left = set(found.digests())
        assert left <= whole
        assert left < whole or found.manifest != b'{"round": 1}\n'


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../../etc/passwd", "is not a part's name"),
        ("/blobs/" + "a" * 64, "is not a part's name"),
        ("blobs/" + "A" * 64, "is not a part's name"),
        ("blobs/" + "a" * 64 + "/", "is not a part's name"),
        ("blobs/" + "0" * 64, "differs from its name"),
    ],
)
def test_no_other_name_than_a_digest_is_read(name: str, why: str) -> None:
    with pytest.raises(EncodingError, match=why):
        BundleFile(io.BytesIO(packed(tarfile.TarInfo(name))))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"x", b"S"])
def test_no_link_pipe_or_extension_is_read(kind: bytes) -> None:
    info = tarfile.TarInfo("blobs/" + sha256(b"").hex())
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(EncodingError, match="another header than a plain file of 0 bytes"):
        BundleFile(io.BytesIO(packed(info)))


def test_a_part_with_an_enormous_size_is_refused_unread() -> None:
    data = bytearray(small())
    data[124:135] = b"7" * 11
    with pytest.raises(EncodingError, match=r"bundle\.json has 8589934591 bytes; at most"):
        BundleFile(io.BytesIO(bytes(data)))
    data[124] = 0x80  # what tar writes numbers in that have no room
    with pytest.raises(EncodingError, match="no size in eleven octal digits"):
        BundleFile(io.BytesIO(bytes(data)))


def test_a_folder_and_a_pipe_are_no_bundle(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(OSError, match="not a file, but a folder"), open_bundle(path):
            pass
    path = tmp_path / "bundle.tar"
    path.write_bytes(small())
    with open_bundle(path) as found:
        assert found.manifest == b'{"round": 1}\n'


def test_parts_come_once_and_in_order() -> None:
    data = small()
    blob = data.index(b"blobs/", 2 * BLOCK + 1)
    twice = data[: 2 * BLOCK] + data[2 * BLOCK : blob] * 2 + data[blob:]
    with pytest.raises(EncodingError, match="names must ascend"):
        BundleFile(io.BytesIO(twice))
    with pytest.raises(EncodingError, match="exactly two empty blocks"):
        BundleFile(io.BytesIO(data + bytes(BLOCK)))


def test_a_bundle_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path, blobs = tmp_path / "bundle.tar", MemoryBlobs()
    here = blobs.put(b"here")
    write_container(path, b"{}", [here], blobs)
    before = path.read_bytes()
    with pytest.raises(BlobMissingError):
        write_container(path, b"{}", [here, sha256(b"gone")], blobs)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["bundle.tar"]


def packed(info: tarfile.TarInfo) -> bytes:
    """Return a bundle whose only other part has this header."""
    start = b"".join(container_parts(b"{}", [], MemoryBlobs()))[: -2 * BLOCK]
    return start + info.tobuf(tarfile.USTAR_FORMAT) + bytes(2 * BLOCK)
