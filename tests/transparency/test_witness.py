"""One request to a witness: every status of the specification, and what is written before it."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.io.home import Disk
from ledger.protocol.types import Digest
from ledger.transparency.network import MAX_EVIDENCE, WitnessFolder
from ledger.transparency.notes import (
    Checkpoint,
    KeyUse,
    NoteError,
    SigningKey,
    WitnessError,
    open_checkpoint,
    sign_checkpoint,
)
from ledger.transparency.tree import EMPTY_ROOT, consistency_proof
from ledger.transparency.witness import (
    MAX_REQUEST_BYTES,
    SIZE_TYPE,
    AddCheckpoint,
    WitnessReply,
    answer,
    origin_hash,
    parse_request,
)
from tests.transparency.support import LOG, NOW, ORIGIN, OTHER_LOG, WITNESSES, checkpoint, leaves

WITNESS = WITNESSES[0]
LOGS = [LOG.verifier, OTHER_LOG.verifier]


def request(old: int, new: int, *, fork: int | None = None) -> AddCheckpoint:
    proof = consistency_proof(min(old, new), leaves(new, fork=fork))
    return AddCheckpoint(old, proof, checkpoint(new, fork=fork).note.encoded())


def replied(asked: AddCheckpoint, newest: int | None = None) -> WitnessReply:
    before = None if newest is None else checkpoint(newest).checkpoint
    return answer(asked, LOGS, WITNESS, before, NOW)


@pytest.mark.parametrize(("old", "new"), [(0, 0), (0, 1), (0, 7), (3, 3), (3, 7), (4, 8), (7, 300)])
def test_a_continuation_is_cosigned_with_the_time(old: int, new: int) -> None:
    reply = replied(request(old, new), old or None)
    assert (reply.status, reply.media_type) == (HTTPStatus.OK, "text/plain; charset=utf-8")
    assert reply.cosigned is not None
    assert reply.cosigned.endswith(reply.body)
    stored = open_checkpoint(reply.cosigned, LOGS)
    assert stored.checkpoint == checkpoint(new).checkpoint
    [cosignature] = stored.cosignatures([WITNESS.verifier])
    assert (cosignature.time, str(cosignature.line).encode()) == (NOW, reply.body)


@pytest.mark.parametrize(
    ("asked", "newest", "status", "body"),
    [
        (request(3, 7), None, HTTPStatus.CONFLICT, b"0\n"),
        (request(0, 7), 3, HTTPStatus.CONFLICT, b"3\n"),
        (request(0, 3), 7, HTTPStatus.CONFLICT, b"7\n"),
        (request(3, 5), 7, HTTPStatus.CONFLICT, b"7\n"),
        (request(7, 3), 7, HTTPStatus.BAD_REQUEST, None),
        (request(3, 7, fork=2), 3, HTTPStatus.UNPROCESSABLE_ENTITY, None),
        (request(7, 7, fork=2), 7, HTTPStatus.UNPROCESSABLE_ENTITY, None),
        (AddCheckpoint(3, (), request(3, 7).note), 3, HTTPStatus.UNPROCESSABLE_ENTITY, None),
        (AddCheckpoint(0, (EMPTY_ROOT,), request(0, 7).note), None, 422, None),
        (AddCheckpoint(3, (EMPTY_ROOT,), request(3, 3).note), 3, 422, None),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, int | bytes) else "",
)
def test_what_is_no_continuation_is_refused_as_specified(
    asked: AddCheckpoint, newest: int | None, status: int, body: bytes | None
) -> None:
    reply = replied(asked, newest)
    assert (reply.status, reply.cosigned) == (status, None)
    assert body is None or (reply.body, reply.media_type) == (body, SIZE_TYPE)


def test_an_empty_tree_with_another_root_is_refused() -> None:
    signed = sign_checkpoint(Checkpoint(ORIGIN, 0, Digest(bytes(32))), LOG)
    reply = replied(AddCheckpoint(0, (), signed.note.encoded()))
    assert (reply.status, reply.cosigned) == (HTTPStatus.UNPROCESSABLE_ENTITY, None)


def test_unknown_logs_and_unsigned_checkpoints_are_refused() -> None:
    stranger = sign_checkpoint(Checkpoint("example.org/unknown", 1, EMPTY_ROOT), OTHER_LOG)
    reply = replied(AddCheckpoint(0, (), stranger.note.encoded()))
    assert reply.status == HTTPStatus.NOT_FOUND
    note = checkpoint(3).note.encoded()
    for forged in (note.replace(b"\n3\n", b"\n4\n"), note.replace(LOG.name.encode() + b" ", b"x ")):
        assert replied(AddCheckpoint(0, (), forged)).status == HTTPStatus.FORBIDDEN


def test_two_trees_of_one_size_are_evidence_whatever_is_asked() -> None:
    for old in (0, 7):
        forked = request(old, 7, fork=2)
        assert replied(forked, 7).evidence == forked.note
    # A proof that does not verify may be anybody's mistake.
    assert replied(request(3, 8, fork=2), 7).evidence is None
    assert replied(request(7, 8, fork=2), 7).evidence is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"old 3\n",
        b"old 03\n\n",
        b"new 3\n\n",
        b"old 9223372036854775808\n\n",
        b"old 3\nnot base64\n\n",
        b"old 3\n" + b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n" * 64 + b"\n",
        b"x" * (MAX_REQUEST_BYTES + 1),
    ],
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(NoteError):
        parse_request(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(body: bytes) -> None:
    try:
        asked = parse_request(body)
    except NoteError:
        return
    assert asked.encoded() == body


def witness(folder: Path, disk: Disk | None = None) -> WitnessFolder:
    return WitnessFolder(folder, LOGS, WITNESS, lambda: NOW, disk or Disk())


def test_a_restarted_witness_goes_on_from_what_it_has_cosigned(tmp_path: Path) -> None:
    assert witness(tmp_path).add_checkpoint(request(0, 3)).status == HTTPStatus.OK
    again = witness(tmp_path)
    assert again.add_checkpoint(request(0, 5)).body == b"3\n"
    assert again.add_checkpoint(request(3, 5)).status == HTTPStatus.OK
    # An old checkpoint, replayed, is no continuation.
    assert again.add_checkpoint(request(0, 3)).status == HTTPStatus.CONFLICT
    assert again.add_checkpoint(request(3, 3)).status == HTTPStatus.CONFLICT
    assert again.add_checkpoint(request(5, 3)).status == HTTPStatus.BAD_REQUEST


def test_a_log_with_a_new_key_goes_on_under_its_origin(tmp_path: Path) -> None:
    new = SigningKey(ORIGIN, KeyUse.NOTE, bytes([77] * 32))
    signed = sign_checkpoint(checkpoint(5).checkpoint, new).note.encoded()
    asked = replace(request(3, 5), note=signed)
    witness(tmp_path).add_checkpoint(request(0, 3))
    assert witness(tmp_path).add_checkpoint(asked).status == HTTPStatus.FORBIDDEN
    both = WitnessFolder(tmp_path, [*LOGS, new.verifier], WITNESS, lambda: NOW)
    assert both.add_checkpoint(asked).status == HTTPStatus.OK
    assert both.add_checkpoint(request(5, 8)).status == HTTPStatus.OK


class CutDisk(Disk):
    """A disk on which the process is killed after, or instead of, a write."""

    def __init__(self, *, is_written: bool) -> None:
        super().__init__()
        self._is_written = is_written

    def write_whole(self, path: Path, data: bytes | memoryview, *, durable: bool = True) -> None:
        assert durable, "what is cosigned has to survive a power cut"
        if self._is_written:
            super().write_whole(path, data, durable=durable)
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_written", [True, False])
def test_a_witness_killed_before_its_answer_does_not_contradict_itself(
    tmp_path: Path, is_written: bool
) -> None:
    witness(tmp_path).add_checkpoint(request(0, 3))
    with pytest.raises(KeyboardInterrupt):
        witness(tmp_path, CutDisk(is_written=is_written)).add_checkpoint(request(3, 5))
    again = witness(tmp_path)
    size = 5 if is_written else 3
    assert again.add_checkpoint(request(0, 5)).body == f"{size}\n".encode()
    assert again.add_checkpoint(request(size, 5)).status == HTTPStatus.OK
    forked = again.add_checkpoint(request(size, 5, fork=2))
    assert forked.status in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}


def test_a_damaged_state_cosigns_nothing(tmp_path: Path) -> None:
    state = witness(tmp_path)
    state.add_checkpoint(request(0, 3))
    path = tmp_path / origin_hash(ORIGIN) / "checkpoint"
    for damage in (b"", path.read_bytes().replace(b"\n3\n", b"\n1\n")):
        path.write_bytes(damage)
        with pytest.raises(WitnessError):
            state.add_checkpoint(request(0, 5))


def test_evidence_is_stored_once_and_bounded(tmp_path: Path) -> None:
    state = witness(tmp_path)
    state.add_checkpoint(request(0, 30))
    folder = tmp_path / origin_hash(ORIGIN) / "evidence"
    for fork in (2, 2, *range(2, 30)):
        state.add_checkpoint(request(30, 30, fork=fork))
    stored = [path.read_bytes() for path in folder.iterdir()]
    assert len(stored) == MAX_EVIDENCE
    assert all(open_checkpoint(note, LOGS).checkpoint.size == 30 for note in stored)
    assert request(30, 30, fork=2).note in stored


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=12))
def test_all_that_is_ever_cosigned_is_one_history(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, int, bool]]
) -> None:
    state = witness(tmp_path_factory.mktemp("state"))
    cosigned: list[Checkpoint] = []
    for old, new, is_forked in asked:
        reply = state.add_checkpoint(request(old, new, fork=2 if is_forked else None))
        if reply.cosigned is not None:
            cosigned.append(open_checkpoint(reply.cosigned, LOGS).checkpoint)
    assert [tree.size for tree in cosigned] == sorted(tree.size for tree in cosigned)
    long_enough = [tree for tree in cosigned if tree.size >= 2]
    honest = all(tree == checkpoint(tree.size).checkpoint for tree in long_enough)
    forked = all(tree == checkpoint(tree.size, fork=2).checkpoint for tree in long_enough)
    assert honest or forked


def test_a_checkpoint_with_another_logs_signature_is_refused() -> None:
    """Both logs are witnessed, and each signs for its own origin alone."""
    own = checkpoint(3)
    other = sign_checkpoint(own.checkpoint, OTHER_LOG)
    assert replied(AddCheckpoint(0, (), other.note.encoded())).status == HTTPStatus.FORBIDDEN
