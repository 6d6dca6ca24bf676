"""A log's folder: what is written, cosigned and refused, and a foreign reader of its checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.protocol.errors import CmflError
from ledger.transparency.network import Publication, checkpoint_at, file_at, publish
from ledger.transparency.notes import LogConflictError, WitnessError, open_checkpoint
from ledger.transparency.policy import WitnessPolicy, parse_policy
from ledger.transparency.tree import read_entries
from ledger.transparency.witness import origin_hash
from tests.patience import PATIENCE_SECONDS
from tests.transparency.serving import Answers, lying, witness_at
from tests.transparency.support import (
    LOG,
    NOW,
    OTHER_LOG,
    WITNESSES,
    checkpoint,
    entries,
    policy_text,
)

KEYS = [key.verifier for key in WITNESSES]


def policy(urls: Sequence[str], quorum: str = "2") -> WitnessPolicy:
    return parse_policy(policy_text(quorum, urls).encode())


def published(
    folder: Path,
    count: int,
    known: WitnessPolicy | None = None,
    *,
    fork: int | None = None,
    is_first: bool = False,
) -> Publication:
    return publish(entries(count, fork=fork), LOG, folder, known, is_first=is_first)


@contextmanager
def two_witnesses(folder: Path) -> Iterator[tuple[str, str]]:
    with witness_at(folder / "0", WITNESSES[0]) as a, witness_at(folder / "1", WITNESSES[1]) as b:
        yield a, b


def size_in(folder: Path, name: str = "checkpoint") -> int:
    return open_checkpoint((folder / name).read_bytes(), [LOG.verifier]).checkpoint.size


def test_a_log_grows_and_every_file_hashes(tmp_path: Path) -> None:
    for count in (0, 1, 5, 5, 256, 300):
        done = published(tmp_path, count)
        assert (done.checkpoint.size, done.is_published) == (count, True)
        signed = open_checkpoint(checkpoint_at(str(tmp_path)), [LOG.verifier])
        found = read_entries(signed.checkpoint, lambda path: file_at(str(tmp_path), path))
        assert found == entries(count)
    # Partial tiles of checkpoints that were published stay.
    assert (tmp_path / "tile" / "0" / "000.p" / "5").exists()


def test_the_key_signs_nothing_that_contradicts_what_it_signed(tmp_path: Path) -> None:
    published(tmp_path, 5)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(LogConflictError, match="rolled back"):
        published(tmp_path, 4)
    with pytest.raises(LogConflictError, match="another history"):
        published(tmp_path, 6, fork=3)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_was_signed_counts_though_no_witness_has_cosigned_it(tmp_path: Path) -> None:
    """Its bytes may be with a witness whose answer was lost."""
    done = published(tmp_path, 5, policy([]), is_first=True)
    assert (done.is_published, done.cosigned) == (False, ())
    assert not (tmp_path / "checkpoint").exists()
    assert size_in(tmp_path, "checkpoint.signed") == 5
    with pytest.raises(LogConflictError):
        published(tmp_path, 4)


def test_a_folder_of_another_key_is_refused(tmp_path: Path) -> None:
    published(tmp_path, 5)
    with pytest.raises(WitnessError, match="another log"):
        publish(entries(6), OTHER_LOG, tmp_path, None)


def test_witnesses_cosign_and_one_that_is_behind_gets_its_proof(tmp_path: Path) -> None:
    with (
        witness_at(tmp_path / "0", WITNESSES[0]) as a,
        witness_at(tmp_path / "1", WITNESSES[1]) as b,
    ):
        one = published(tmp_path / "log", 3, policy([a], "any"))
        assert one.cosigned == ("W0",)
        both = published(tmp_path / "log", 7, policy([a, b]))
        assert (both.cosigned, both.failures, both.is_published) == (("W0", "W1"), (), True)
        again = published(tmp_path / "log", 7, policy([a, b]))
        assert again.is_published
    signed = open_checkpoint((tmp_path / "log" / "checkpoint").read_bytes(), [LOG.verifier])
    assert [each.time for each in signed.cosignatures(KEYS)] == [NOW, NOW]


def test_a_checkpoint_loses_no_cosignature_when_it_is_published_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with two_witnesses(tmp_path) as (a, b):
        published(log, 3, policy([a, b]))
        published(log, 3, policy([a], "any"))
        published(log, 3)
        signed = open_checkpoint((log / "checkpoint").read_bytes(), [LOG.verifier])
        assert len(signed.cosignatures(KEYS)) == 2
        published(log, 4)
    signed = open_checkpoint((log / "checkpoint").read_bytes(), [LOG.verifier])
    assert signed.cosignatures(KEYS) == []
    (log / "checkpoint").write_bytes(b"damaged")
    assert published(log, 4).is_published
    assert size_in(log) == 4


def test_a_witness_that_has_seen_more_names_the_rollback(tmp_path: Path) -> None:
    """The folder of the log was lost with the newest blocks, and nobody here would notice."""
    with witness_at(tmp_path / "0", WITNESSES[0]) as url:
        published(tmp_path / "log", 7, policy([url], "any"))
        with pytest.raises(LogConflictError, match="rolled back"):
            published(tmp_path / "restored", 5, policy([url], "any"))
        with pytest.raises(LogConflictError, match="another history"):
            published(tmp_path / "forked", 9, policy([url], "any"), fork=6)
        assert not [*tmp_path.glob("*ed/checkpoint*")]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"x" * 200_000),
        (200, "— w0.example AAAAAAAA\n".encode()),
        (200, str(checkpoint(5, by=[WITNESSES[1]]).note.signatures[-1]).encode()),
        (200, str(checkpoint(6, by=[WITNESSES[0]]).note.signatures[-1]).encode()),
        (409, b"five\n"),
        (409, b"9" * 400 + b"\n"),
        (409, b"6\n"),
        (500, b"\x1b[31mno"),
        (302, b""),
    ],
)
def test_a_lying_witness_is_one_sentence(tmp_path: Path, status: int, body: bytes) -> None:
    with lying(Answers({"/add-checkpoint": (status, body)})) as url:
        done = published(tmp_path, 5, policy([url], "any"))
    assert (done.cosigned, len(done.failures)) == ((), 1)
    assert done.failures[0].isprintable()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "not a url", "ftp://127.0.0.1"])
def test_a_witness_that_is_not_there_is_one_sentence(tmp_path: Path, url: str) -> None:
    policy_line = policy([url.replace(" ", "%20")], "any")
    done = published(tmp_path, 5, policy_line, is_first=True)
    assert (done.is_published, len(done.failures)) == (False, 1)


def test_an_empty_folder_is_signed_once_a_quorum_has_answered(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gone = "http://127.0.0.1:9"
    with two_witnesses(tmp_path) as (a, b):
        with lying(Answers({f"/{origin_hash(LOG.name)}/checkpoint": (500, b"")})) as broken:
            for others in ([], [gone], [broken]):
                with pytest.raises(WitnessError, match=r"1 of 3 witnesses responded.* --first"):
                    published(log, 5, policy([a, *others]))
        assert not log.exists(), "nothing is signed"
        assert published(log, 5, policy([a, b])).is_published
        # The key's last checkpoint is at hand from now on.
        assert not published(log, 6, policy([a, gone])).is_published
    assert size_in(log, "checkpoint.signed") == 6


def test_silent_witnesses_are_asked_at_once_and_once(tmp_path: Path) -> None:
    both = threading.Barrier(2)
    asked: list[str] = []

    class Silent(Answers):
        def of(self, path: str) -> tuple[int, bytes]:
            asked.append(path)
            both.wait(PATIENCE_SECONDS)  # asked one after the other, neither gets further
            raise ConnectionError

    with lying(Silent()) as a, lying(Silent()) as b:
        done = published(tmp_path, 5, policy([a, b]), is_first=True)
    assert (done.cosigned, len(done.failures), len(asked)) == ((), 2, 2)


def test_places_without_a_checkpoint_are_named(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 100_001)
    for place in (tmp_path / "missing", tmp_path, tmp_path / "long"):
        with pytest.raises(CmflError, match=str(place)):
            checkpoint_at(str(place))


def test_without_a_quorum_the_checkpoint_in_place_stays(tmp_path: Path) -> None:
    with (
        witness_at(tmp_path / "0", WITNESSES[0]) as a,
        witness_at(tmp_path / "1", WITNESSES[1]) as b,
    ):
        published(tmp_path / "log", 3, policy([a, b]))
    with witness_at(tmp_path / "0", WITNESSES[0]) as a:
        done = published(tmp_path / "log", 7, policy([a, b]))
    assert (done.cosigned, done.is_published, len(done.failures)) == (("W0",), False, 1)
    assert size_in(tmp_path / "log") == 3
