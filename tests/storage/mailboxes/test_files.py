"""A folder as a mailbox: everybody sees everything once, whoever writes whatever meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.io.home import Disk
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    Proposal,
    PublishedPayload,
    encode_envelope,
)
from ledger.protocol.encoding import ResultPreimage, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import (
    ClientId,
    Digest,
    Phase,
    SignedVote,
    Vote,
    VoteKind,
)
from ledger.storage.mailboxes import arrivals, files
from ledger.storage.mailboxes.files import folder_of
from ledger.storage.mailboxes.folder import FolderMailbox
from tests.actors.support import DOMAIN
from tests.faults import times
from tests.io.test_home import full_disk

if TYPE_CHECKING:
    from collections.abc import Collection

KIND = EnvelopeKind.PAYLOAD
BOARD = (DOMAIN, 1, KIND)


class QuickDisk(Disk):
    """A disk that nobody cuts the power of."""

    def sync_files(self, paths: Collection[Path]) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


QUICK = QuickDisk()


def envelope(number: int, round_number: int = 1) -> Envelope:
    payload = PublishedPayload(Digest(number.to_bytes(32)))
    return Envelope(DOMAIN, round_number, ClientId(number % 3), payload)


def listed(mailbox: FolderMailbox, start: int = 0) -> list[Envelope]:
    return list(mailbox.listed(DOMAIN, 1, KIND, start))


def file_of(folder: Path, one: Envelope) -> Path:
    board = (one.domain, one.round, one.kind)
    return folder / folder_of(board) / sha256(encode_envelope(one)).hex()


def test_an_envelope_is_a_file_under_its_sha256(tmp_path: Path) -> None:
    mailbox = FolderMailbox(tmp_path)
    assert mailbox.is_shared
    assert mailbox.put(envelope(1))
    assert not mailbox.put(envelope(1))
    assert mailbox.holds(envelope(1))
    assert not mailbox.holds(envelope(2))
    contract = DOMAIN.contract.hex()
    path = file_of(tmp_path, envelope(1))
    assert path.parent == tmp_path / "mail" / "31337" / contract / DOMAIN.salt.hex() / "1" / "2"
    assert path.read_bytes() == encode_envelope(envelope(1))
    assert list(path.parent.iterdir()) == [path]


def test_readers_and_writers_are_different_processes(tmp_path: Path) -> None:
    writer, reader = FolderMailbox(tmp_path), FolderMailbox(tmp_path)
    assert listed(reader) == []
    writer.put(envelope(1))
    assert listed(reader) == [envelope(1)]
    reader.put(envelope(2))
    assert listed(writer, 0) in (
        [envelope(1), envelope(2)],
        [envelope(2), envelope(1)],
    )
    assert listed(reader, 1) == [envelope(2)]
    assert listed(reader, 2) == []
    assert reader.listed(DOMAIN, 2, KIND) == []
    assert reader.listed(replace(DOMAIN, chain_id=1), 1, KIND) == []


def test_forgetting_takes_nothing_from_others(tmp_path: Path) -> None:
    mailbox, other = FolderMailbox(tmp_path), FolderMailbox(tmp_path)
    mailbox.put(envelope(1))
    assert listed(mailbox) == listed(other) == [envelope(1)]
    mailbox.forget(DOMAIN, 2)
    assert listed(other) == [envelope(1)]
    assert listed(mailbox) == [envelope(1)], "it is read again"
    assert mailbox.remove(DOMAIN, 1) == []
    assert mailbox.remove(DOMAIN, 2) == [1]
    assert not file_of(tmp_path, envelope(1)).exists()
    assert listed(other) == [envelope(1)], "what was listed stays listed"


def test_what_cannot_be_removed_keeps_nothing_else(tmp_path: Path) -> None:
    mailbox = FolderMailbox(tmp_path)
    mailbox.put(envelope(1, round_number=5))
    rounds = file_of(tmp_path, envelope(1)).parents[1]
    rounds.parent.joinpath("3").write_bytes(b"a file where a folder should be")
    with pytest.raises(NotADirectoryError):
        mailbox.remove(DOMAIN, 9)
    assert not rounds.with_name("5").exists()


def test_what_is_no_envelope_is_passed_over_and_not_read_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox, good = FolderMailbox(tmp_path), envelope(1)
    mailbox.put(good)
    folder = file_of(tmp_path, good).parent
    data = encode_envelope(good)
    elsewhere = encode_envelope(envelope(1, round_number=2))
    for name, content in (
        ("README", b"a stranger's"),
        (".writing-0123", data),
        ("ab" * 32, data),
        (sha256(b"").hex(), b""),
        (sha256(data[:-1]).hex(), data[:-1]),
        (sha256(elsewhere).hex(), elsewhere),
        (sha256(data + b"\0").hex(), data + b"\0"),
        (sha256(bytes(MAX_DOCUMENT_BYTES + 1)).hex(), bytes(MAX_DOCUMENT_BYTES + 1)),
    ):
        (folder / name).write_bytes(content)
    (folder / ("cd" * 32)).mkdir()
    os.mkfifo(folder / ("ef" * 32))
    (folder / ("01" * 32)).symlink_to("/etc/passwd")
    assert listed(mailbox) == [good]
    read: list[str] = []
    whole = mailbox._files.read

    def noted(path: str, limit: int) -> bytes:
        read.append(path)
        return whole(path, limit)

    monkeypatch.setattr(mailbox._files, "read", noted)
    assert listed(mailbox) == [good]
    assert {path[-64:] for path in read} <= {"cd" * 32, "ef" * 32}, "only what cannot be read"


def test_a_file_that_is_still_being_copied_is_seen_once_it_is_whole(tmp_path: Path) -> None:
    mailbox, one = FolderMailbox(tmp_path), envelope(1)
    path, data = file_of(tmp_path, one), encode_envelope(one)
    path.parent.mkdir(parents=True)
    for size in (0, 5, len(data) - 1):
        path.write_bytes(data[:size])
        assert listed(mailbox) == []
    path.write_bytes(data)
    assert listed(mailbox) == [one]


def test_a_file_that_changes_for_ever_is_read_so_often_only(tmp_path: Path) -> None:
    mailbox, one = FolderMailbox(tmp_path), envelope(1)
    path = file_of(tmp_path, one)
    path.parent.mkdir(parents=True)
    for size in range(arrivals.MOST_LOOKS):
        path.write_bytes(bytes(size))
        assert listed(mailbox) == []
    path.write_bytes(encode_envelope(one))
    assert listed(mailbox) == []
    assert listed(FolderMailbox(tmp_path)) == [one]


def test_a_damaged_file_is_written_again(tmp_path: Path) -> None:
    mailbox = FolderMailbox(tmp_path)
    mailbox.put(envelope(1))
    file_of(tmp_path, envelope(1)).write_bytes(b"torn")
    assert mailbox.put(envelope(1))
    assert listed(mailbox) == [envelope(1)]


def test_one_listing_reads_so_much_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = FolderMailbox(tmp_path, disk=QUICK)
    for number in range(5):
        writer.put(envelope(number))
    size = len(encode_envelope(envelope(0)))
    monkeypatch.setattr(files, "MOST_BYTES_AT_ONCE", 2 * size)
    reader = FolderMailbox(tmp_path)
    counts = [len(listed(reader)) for _ in range(4)]
    assert counts == [2, 4, 5, 5]
    monkeypatch.setattr(files, "MOST_FILES", 3)
    reader = FolderMailbox(tmp_path)
    assert [len(listed(reader)) for _ in range(3)] == [2, 3, 3]
    monkeypatch.undo()
    monkeypatch.setattr(arrivals, "MOST_BOARD_BYTES", 4 * size)
    assert len(listed(FolderMailbox(tmp_path))) == 4


def test_a_full_disk_takes_no_half_envelope(tmp_path: Path) -> None:
    mailbox = FolderMailbox(tmp_path)
    with full_disk(10), pytest.raises(OSError, match="File too large") as caught:
        mailbox.put(envelope(1))
    assert caught.value.errno == errno.EFBIG
    assert listed(mailbox) == []
    assert mailbox.put(envelope(1))
    assert [path.name for path in file_of(tmp_path, envelope(1)).parent.iterdir()] == [
        file_of(tmp_path, envelope(1)).name
    ]


def test_an_envelope_that_nobody_would_read_is_not_put(tmp_path: Path) -> None:
    zero = Digest(bytes(32))
    vote = Vote(VoteKind.REQUEST, 1, Phase.AGGREGATION, 0, zero, zero, zero)
    request = SignedVote(ClientId(0), vote, bytes(65))
    opening = ResultPreimage(zero, zero, zero, zero, 0, zero, zero)
    proposal = Proposal(request, opening, bytes(MAX_DOCUMENT_BYTES))
    mailbox = FolderMailbox(tmp_path)
    with pytest.raises(EncodingError, match="over the bound of 1000000"):
        mailbox.put(Envelope(DOMAIN, 1, ClientId(0), proposal))
    assert not any(tmp_path.iterdir())


def test_a_place_that_fails_as_a_whole_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = FolderMailbox(tmp_path, disk=QUICK)
    for number in range(files.MOST_UNREADABLE + 1):
        mailbox.put(envelope(number))

    def broken(path: str, limit: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error", path)

    with monkeypatch.context() as patched:
        patched.setattr(mailbox._files, "read", broken)
        with pytest.raises(OSError, match="Input/output error"):
            listed(mailbox)
    assert len(listed(mailbox)) == files.MOST_UNREADABLE + 1


WRITERS, READERS = 3, 3
steps = st.one_of(
    st.tuples(st.just("put"), st.integers(0, WRITERS - 1), st.integers(0, 11)),
    st.tuples(st.just("torn"), st.integers(0, 11), st.integers(0, 60)),
    st.tuples(st.just("list"), st.integers(0, READERS - 1), st.just(0)),
)


@settings(max_examples=times(25, 2_000))
@given(st.lists(steps, max_size=40))
def test_every_reader_sees_every_envelope_exactly_once(run: list[tuple[str, int, int]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        writers = [FolderMailbox(folder, disk=QUICK) for _ in range(WRITERS)]
        readers = [FolderMailbox(folder) for _ in range(READERS)]
        seen: list[list[Envelope]] = [[] for _ in readers]
        put: set[Envelope] = set()
        for act, who, what in run:
            match act:
                case "put":
                    assert writers[who].put(envelope(what)) == (envelope(what) not in put)
                    put.add(envelope(what))
                case "torn" if envelope(who) not in put:
                    # Somebody's copy is on its way, and goes no further until it is put.
                    path = file_of(folder, envelope(who))
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(encode_envelope(envelope(who))[:what])
                case "list":
                    seen[who] += listed(readers[who], len(seen[who]))
                    assert set(seen[who]) == put
                case _:
                    pass
        for found, reader in zip(seen, readers, strict=True):
            before = list(found)
            found.extend(listed(reader, len(found)))
            assert len(found) == len(set(found)) == len(put)
            assert set(found) == put
            assert listed(reader) == found
            assert found[: len(before)] == before
    finally:
        shutil.rmtree(folder)
