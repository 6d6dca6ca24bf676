"""Mail: each envelope once and in a stable order, whatever anyone writes meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.io import home
from ledger.io.home import DISK, Disk
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    Proposal,
    PublishedEnvironment,
    PublishedPayload,
    Reply,
    encode_envelope,
)
from ledger.protocol.encoding import ResultPreimage, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.training_replay import TrainingEnvironment
from ledger.protocol.types import ClientId, Digest, Phase, SignedVote, Vote, VoteKind
from ledger.storage import blobs
from ledger.storage.blobs import FolderObjects
from ledger.storage.mailbox import Mailbox, MemoryMailbox, board_folder, remove_mail
from tests.faults import times
from tests.support.keys import DOMAIN

KIND = EnvelopeKind.PAYLOAD
ZERO = Digest(bytes(32))


class QuickDisk(Disk):
    """A disk that nobody cuts the power of."""

    def sync_files(self, paths: Collection[Path]) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


QUICK = QuickDisk()


def mailbox_in(folder: Path, disk: Disk = DISK) -> Mailbox:
    return Mailbox(FolderObjects(folder, disk=disk))


def envelope(number: int, round_number: int = 1) -> Envelope:
    payload = PublishedPayload(Digest(number.to_bytes(32)))
    return Envelope(DOMAIN, round_number, ClientId(number % 3), payload)


def listed(mailbox: Mailbox, start: int = 0) -> list[Envelope]:
    return list(mailbox.listed(DOMAIN, 1, KIND, start))


def file_of(folder: Path, sent: Envelope) -> Path:
    board = (sent.domain, sent.round, sent.kind)
    return folder / board_folder(board) / sha256(encode_envelope(sent)).hex()


def test_memory_forgets_the_rounds_of_one_contract() -> None:
    mailbox, elsewhere = MemoryMailbox(), replace(DOMAIN, chain_id=1)
    later, foreign = envelope(1, round_number=2), replace(envelope(1), domain=elsewhere)
    for each in (envelope(1), _reply(), later, foreign):
        assert mailbox.put(each)
    mailbox.forget(DOMAIN, 2)
    assert listed(mailbox) == mailbox.listed(DOMAIN, 1, EnvelopeKind.REPLY) == []
    assert mailbox.listed(DOMAIN, 2, KIND) == [later]
    assert mailbox.listed(elsewhere, 1, KIND) == [foreign]


def _reply() -> Envelope:
    vote = Vote(VoteKind.REPLY, 1, Phase.AGGREGATION, 0, ZERO, ZERO, ZERO)
    return Envelope(DOMAIN, 1, ClientId(0), Reply(SignedVote(ClientId(0), vote, bytes(65))))


def test_an_envelope_is_a_file_under_its_sha256(tmp_path: Path) -> None:
    mailbox = mailbox_in(tmp_path)
    assert mailbox.is_shared
    assert mailbox.put(envelope(1))
    assert mailbox.holds(envelope(1))
    assert not mailbox.holds(envelope(2))
    contract = DOMAIN.contract.hex()
    path = file_of(tmp_path, envelope(1))
    assert path.parent == tmp_path / "mail" / "31337" / contract / DOMAIN.salt.hex() / "1" / "2"
    assert path.read_bytes() == encode_envelope(envelope(1))
    assert list(path.parent.iterdir()) == [path]
    assert mailbox.listed(replace(DOMAIN, chain_id=1), 1, KIND) == []


def test_forgetting_takes_nothing_from_others(tmp_path: Path) -> None:
    mailbox, other = mailbox_in(tmp_path), mailbox_in(tmp_path)
    mailbox.put(envelope(1))
    assert listed(mailbox) == listed(other) == [envelope(1)]
    mailbox.forget(DOMAIN, 2)
    assert listed(other) == [envelope(1)]
    assert listed(mailbox) == [envelope(1)], "it is read again"
    assert remove_mail(tmp_path, DOMAIN, 1) == []
    assert remove_mail(tmp_path, DOMAIN, 2) == [1]
    assert not file_of(tmp_path, envelope(1)).exists()
    assert listed(other) == [envelope(1)], "what was listed stays listed"


def test_removal_of_old_mail_leaves_environments(tmp_path: Path) -> None:
    mailbox = mailbox_in(tmp_path)
    here = TrainingEnvironment("2.13.0+cpu", "plain", "x86_64", "AVX2", "cpu", 1)
    stated = Envelope(DOMAIN, 1, ClientId(1), PublishedEnvironment(here, bytes(65)))
    mailbox.put(stated)
    mailbox.put(envelope(1))
    assert remove_mail(tmp_path, DOMAIN, 2) == [1]
    assert remove_mail(tmp_path, DOMAIN, 2) == []
    fresh = mailbox_in(tmp_path)
    assert listed(fresh) == []
    assert list(fresh.listed(DOMAIN, 1, EnvelopeKind.ENVIRONMENT)) == [stated]


def test_a_round_that_cannot_be_removed_blocks_no_other(tmp_path: Path) -> None:
    mailbox_in(tmp_path).put(envelope(1, round_number=5))
    rounds = file_of(tmp_path, envelope(1)).parents[1]
    rounds.parent.joinpath("3").write_bytes(b"a file where a folder should be")
    with pytest.raises(NotADirectoryError):
        remove_mail(tmp_path, DOMAIN, 9)
    assert not rounds.with_name("5").exists()


def test_foreign_files_are_passed_over_and_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox, good = mailbox_in(tmp_path), envelope(1)
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
    names: set[str] = set()

    def noted(path: Path, limit: int) -> bytes:
        names.add(path.name)
        return home.read_file(path, limit)

    monkeypatch.setattr(blobs, "read_file", noted)
    assert listed(mailbox) == [good]
    assert names <= {"cd" * 32, "ef" * 32}, "only those that cannot be read"


def test_each_scan_is_bounded_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = mailbox_in(tmp_path, QUICK)
    for number in range(5):
        writer.put(envelope(number))
    size = len(encode_envelope(envelope(0)))
    monkeypatch.setattr(blobs, "MAX_SCAN_BYTES", 2 * size)
    reader = mailbox_in(tmp_path)
    assert [len(listed(reader)) for _ in range(4)] == [2, 4, 5, 5]
    monkeypatch.setattr(blobs, "MAX_FOLDER_OBJECTS", 3)
    reader = mailbox_in(tmp_path)
    assert [len(listed(reader)) for _ in range(3)] == [2, 3, 3]
    monkeypatch.undo()
    monkeypatch.setattr(blobs, "MAX_FOLDER_BYTES", 4 * size)
    assert len(listed(mailbox_in(tmp_path))) == 4


def test_an_envelope_that_is_too_large_is_not_put(tmp_path: Path) -> None:
    vote = Vote(VoteKind.REQUEST, 1, Phase.AGGREGATION, 0, ZERO, ZERO, ZERO)
    request = SignedVote(ClientId(0), vote, bytes(65))
    preimage = ResultPreimage(ZERO, ZERO, ZERO, ZERO, ZERO, ZERO)
    proposal = Proposal(request, preimage, bytes(MAX_DOCUMENT_BYTES))
    with pytest.raises(EncodingError, match="over the bound of 1000000"):
        mailbox_in(tmp_path).put(Envelope(DOMAIN, 1, ClientId(0), proposal))
    assert not any(tmp_path.iterdir())


def test_a_folder_that_fails_as_a_whole_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = mailbox_in(tmp_path, QUICK)
    for number in range(blobs.MAX_UNREADABLE + 1):
        mailbox.put(envelope(number))

    def broken(path: Path, limit: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "read_file", broken)
        with pytest.raises(OSError, match="Input/output error"):
            listed(mailbox)
    assert len(listed(mailbox)) == blobs.MAX_UNREADABLE + 1


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
        writers = [mailbox_in(folder, QUICK) for _ in range(WRITERS)]
        readers = [mailbox_in(folder) for _ in range(READERS)]
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
        for got, reader in zip(seen, readers, strict=True):
            before = list(got)
            got.extend(listed(reader, len(got)))
            assert len(got) == len(set(got)) == len(put)
            assert set(got) == put
            assert listed(reader) == got
            assert got[: len(before)] == before
    finally:
        shutil.rmtree(folder)
