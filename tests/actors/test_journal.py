"""What was said before a kill, or by another process, is never said otherwise."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.actors import journal
from ledger.actors.journal import (
    FileJournal,
    MemoryJournal,
    ProtectedSigner,
    VoteJournal,
    count_statements,
    first_certificate_key,
    scores_key,
    vote_key,
)
from ledger.protocol.documents.envelope import Body, Envelope, Proposal, PublishedPayload, Reply
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import JournalError
from ledger.protocol.types import Address, ClientId, Digest, Domain, Phase, Scores, Vote, VoteKind
from tests.actors.support import published, signed_vote, signers
from tests.audit.runs import SIGNERS, Run
from tests.disks import FILLING, fill, small_disk
from tests.patience import PATIENCE_SECONDS
from tests.support.keys import DOMAIN

ONE, OTHER = Digest(b"1" * 32), Digest(b"2" * 32)
VOTE = Vote(VoteKind.REPLY, 3, Phase.AGGREGATION, 2, ONE, ONE, ONE)
SCORES = Scores(3, ClientId(4), ONE, ONE, ONE)

SPEAKER = """
import os, pathlib, signal, sys
def say():
    sys.stdout.write("\\n")
    sys.stdout.flush()
from ledger.actors.journal import FileJournal
journal = FileJournal(pathlib.Path(sys.argv[1]))
for word in sys.argv[2:]:
    if word == "sync":
        journal.sync()
    elif word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "wait":
        say()
        sys.stdin.readline()
    elif word == "say":
        say()
    else:
        journal.record(b"place", word.encode())
"""


@contextmanager
def opened(path: Path) -> Iterator[FileJournal]:
    found = FileJournal(path)
    try:
        yield found
    finally:
        found.close()


def speak(path: Path, *words: str) -> None:
    """Let another process speak; "kill" ends it as a power switch would."""
    subprocess.run([sys.executable, "-c", SPEAKER, str(path), *words], check=False)


@pytest.fixture(params=["memory", "file"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VoteJournal]:
    if request.param == "memory":
        yield MemoryJournal()
    else:
        with opened(tmp_path / "journal.sqlite") as found:
            yield found


def test_keeps_and_returns_the_first_statement_of_a_slot(kept: VoteJournal) -> None:
    assert kept.record(b"place", b"first") == b"first"
    assert kept.record(b"place", b"second") == b"first"
    kept.sync()
    assert kept.record(b"place", b"second") == b"first"
    assert kept.record(b"elsewhere", b"second") == b"second"
    kept.sync()
    kept.sync()


def test_what_was_synced_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    speak(path, "first", "sync", "kill")
    with opened(path) as found:
        assert found.record(b"place", b"second") == b"first"


def test_what_was_not_synced_has_not_been_said(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    speak(path, "first", "kill")
    with opened(path) as found:
        assert found.record(b"place", b"second") == b"second"


@pytest.mark.parametrize(("end", "stands"), [("sync", b"first"), ("kill", b"second")])
def test_second_process_waits_and_finds_the_statement_of_the_first(
    tmp_path: Path, end: str, stands: bytes
) -> None:
    path = tmp_path / "journal.sqlite"
    command = [sys.executable, "-c", SPEAKER, str(path), "first", "wait", end]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as speaker:
        assert speaker.stdout is not None
        assert speaker.stdin is not None
        speaker.stdout.readline()
        command = [sys.executable, "-c", SPEAKER, str(path), "say", "second", "sync"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            follower.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                follower.wait(0.2)
            speaker.stdin.write("\n")
            speaker.stdin.flush()
            assert follower.wait(PATIENCE_SECONDS) == 0
    with opened(path) as found:
        assert found.record(b"place", b"third") == stands


def test_journal_locked_for_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "BUSY_SECONDS", 0.05)
    path = tmp_path / "journal.sqlite"
    with opened(path) as holder, opened(path) as other:
        holder.record(b"place", b"first")
        with pytest.raises(JournalError, match="locked"):
            other.record(b"place", b"second")
        holder.sync()
        assert other.record(b"place", b"second") == b"first"


@pytest.mark.parametrize("damage", ["text", "cut", "overwritten"])
def test_damaged_file_is_an_error_and_not_an_empty_journal(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal.sqlite"
    speak(path, "first", "sync")
    data = path.read_bytes()
    broken = {
        "text": b"this is no journal" * 100,
        "cut": data[: len(data) // 2],
        "overwritten": data[:100] + b"\xff" * (len(data) - 100),
    }
    path.write_bytes(broken[damage])
    with pytest.raises(JournalError, match=r"journal\.sqlite"), opened(path) as found:
        found.record(b"place", b"second")


@pytest.mark.parametrize("left", [0, 1])
def test_a_file_with_missing_statements_is_an_error(tmp_path: Path, left: int) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as found:
        for place in (b"place", b"elsewhere"):
            found.record(place, b"first")
            found.sync()
        found.record(b"place", b"second")
        found.sync()
    assert count_statements(path) == 2
    base = sqlite3.connect(path)
    with base:
        base.execute("DELETE FROM statements WHERE place = ? OR ?", (b"place", left == 0))
    base.close()
    for look in (FileJournal, count_statements):
        with pytest.raises(JournalError, match=f"has {left} of the 2 statements"):
            look(path)


def test_two_processes_on_one_journal_miss_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as one, opened(path) as other:
        for number, journal in enumerate((one, other, one, other)):
            for place in (b"%d" % number, b"both"):
                journal.record(place, b"said")
            journal.sync()
    assert count_statements(path) == 5


def test_a_sync_that_fails_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as found:
        found.record(b"place", b"first")
        # A reader that has begun keeps the writer from its commit.
        found._base.execute("PRAGMA busy_timeout = 50")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM statements").fetchall()
        with pytest.raises(JournalError, match="locked"):
            found.sync()
        reader.close()
        found.sync()


def test_a_full_disk_is_an_error_and_nothing_is_signed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        path = disk / "journal.sqlite"

        def say_too_much() -> None:
            with opened(path) as kept:
                fill(disk, 0)
                kept.record(b"place", bytes(100_000))
                kept.sync()

        with pytest.raises(JournalError, match=f"vote journal {path}: "):
            say_too_much()
        (disk / FILLING).unlink()
        with opened(path) as kept:
            assert kept.record(b"place", b"another") == b"another"


def test_a_commit_is_safe_from_a_power_cut_too(tmp_path: Path) -> None:
    # With FULL alone the folder is not synced after the rollback journal is removed: a power cut
    # can bring that file back, and with it undo a commit whose votes have left.
    with opened(tmp_path / "journal.sqlite") as found:
        assert found._base.execute("PRAGMA synchronous").fetchone() == (3,)
        assert found._base.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_every_part_of_a_slot_makes_another_place() -> None:
    places = {
        vote_key(DOMAIN, ClientId(4), VOTE),
        vote_key(replace(DOMAIN, chain_id=1), ClientId(4), VOTE),
        vote_key(replace(DOMAIN, contract=Address(bytes(20))), ClientId(4), VOTE),
        vote_key(replace(DOMAIN, salt=Digest(bytes(32))), ClientId(4), VOTE),
        vote_key(DOMAIN, ClientId(5), VOTE),
        vote_key(DOMAIN, ClientId(4), replace(VOTE, kind=VoteKind.REQUEST)),
        vote_key(DOMAIN, ClientId(4), replace(VOTE, round=4)),
        vote_key(DOMAIN, ClientId(4), replace(VOTE, phase=Phase.ELECTION)),
        vote_key(DOMAIN, ClientId(4), replace(VOTE, view=3)),
        vote_key(DOMAIN, ClientId(4), replace(VOTE, base=OTHER)),
        scores_key(DOMAIN, SCORES),
        scores_key(DOMAIN, replace(SCORES, member=ClientId(5))),
        scores_key(DOMAIN, replace(SCORES, round=4)),
        scores_key(DOMAIN, replace(SCORES, base=OTHER)),
        scores_key(DOMAIN, replace(SCORES, clients=OTHER)),
        first_certificate_key(DOMAIN, ClientId(4), 3, ONE),
        first_certificate_key(DOMAIN, ClientId(4), 3, OTHER),
    }
    assert len(places) == 17


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[tuple[Run, Run]]:
    """A run, and the same run on a chain that began again, with the same commitments."""
    first, again = (Run.on_revm(tmp_path / name) for name in ("first", "again"))
    with first.chain, again.chain:
        for run in (first, again):
            run.prepare()
        yield first, again


def test_one_journal_binds_a_key_though_the_chain_began_again(
    lives: tuple[Run, Run], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, again = lives
    domain = first.manifest.domain()
    assert again.manifest.domain() == domain, "chain id, address and salt are the same"
    base = first.inputs.closing.base
    assert again.inputs.closing.base == base, "and so is the slot"
    member = first.committee[0]
    vote = Vote(VoteKind.REPLY, 1, Phase.AGGREGATION, 0, base, ONE, ONE)
    scores = Scores(1, member, base, ONE, ONE)
    with opened(tmp_path / "journal.sqlite") as kept:
        signer = ProtectedSigner(member, SIGNERS[member], kept)
        said = signer.vote(domain, vote), signer.scores(domain, scores)
        kept.sync()
    assert None not in said
    with opened(tmp_path / "journal.sqlite") as kept:
        signer = ProtectedSigner(member, SIGNERS[member], kept)
        for _ in range(2):
            assert signer.vote(again.manifest.domain(), replace(vote, result=OTHER)) is None
            assert signer.scores(again.manifest.domain(), replace(scores, digest=OTHER)) is None
        assert (signer.vote(domain, vote), signer.scores(domain, scores)) == said
    client = f"client {member} does not sign another"
    why = (
        "of round 1: its vote journal has one of this run, or of an earlier chain with the same "
        "id, address and salt"
    )
    wanted = [f"{client} reply in phase 1, view 0, {why}", f"{client} score vector {why}"]
    assert [record.getMessage() for record in caplog.records] == wanted


# A client signs what its journal allows, and adopts what it can be shown to have signed.


ME, ANOTHER = ClientId(4), ClientId(5)
ONE, OTHER = Digest(b"1" * 32), Digest(b"2" * 32)
VECTOR = b"a vector"
CLAIM = Scores(3, ME, ONE, ONE, sha256(VECTOR))


def voice() -> ProtectedSigner:
    return ProtectedSigner(ME, signers()[ME], MemoryJournal())


def envelope(body: Body, client: ClientId = ME, domain: Domain = DOMAIN) -> Envelope:
    return Envelope(domain, 3, client, body)


def test_signs_a_vote_again_but_no_other_in_its_slot() -> None:
    speaker = voice()
    signed = speaker.vote(DOMAIN, VOTE)
    assert signed == signed_vote(ME, VOTE)
    assert speaker.vote(DOMAIN, VOTE) == signed
    assert speaker.vote(DOMAIN, replace(VOTE, result=OTHER)) is None
    assert speaker.vote(DOMAIN, replace(VOTE, set_digest=OTHER)) is None
    assert speaker.vote(DOMAIN, replace(VOTE, view=3, result=OTHER)) is not None


def test_signs_a_vector_again_but_no_other_for_its_set() -> None:
    speaker = voice()
    signed = speaker.scores(DOMAIN, CLAIM)
    assert signed == published(ME, CLAIM, VECTOR).signed
    assert speaker.scores(DOMAIN, CLAIM) == signed
    assert speaker.scores(DOMAIN, replace(CLAIM, digest=OTHER)) is None
    assert speaker.scores(DOMAIN, replace(CLAIM, clients=OTHER, digest=OTHER)) is not None


def test_adopts_what_it_has_said_before_its_journal_was_restored() -> None:
    speaker = voice()
    request = replace(VOTE, kind=VoteKind.REQUEST)
    speaker.adopt(
        DOMAIN,
        [
            envelope(Reply(signed_vote(ME, VOTE))),
            envelope(Proposal(signed_vote(ME, request))),
            envelope(published(ME, CLAIM, VECTOR)),
            envelope(PublishedPayload(ONE)),
        ],
    )
    assert speaker.vote(DOMAIN, replace(VOTE, result=OTHER)) is None
    assert speaker.vote(DOMAIN, replace(request, result=OTHER)) is None
    assert speaker.scores(DOMAIN, replace(CLAIM, digest=OTHER)) is None
    assert speaker.vote(DOMAIN, VOTE) is not None


@pytest.mark.parametrize(
    "foreign",
    [
        envelope(Reply(signed_vote(ME, VOTE)), client=ANOTHER),
        envelope(Reply(signed_vote(ME, VOTE)), domain=replace(DOMAIN, chain_id=1)),
        envelope(Reply(signed_vote(ME, VOTE, key=ANOTHER))),
        envelope(Reply(signed_vote(ME, VOTE, domain=replace(DOMAIN, chain_id=1)))),
        envelope(Proposal(signed_vote(ME, replace(VOTE, kind=VoteKind.REQUEST), key=ANOTHER))),
        envelope(published(ME, CLAIM, VECTOR, key=ANOTHER)),
        envelope(published(ME, replace(CLAIM, member=ANOTHER), VECTOR)),
    ],
    ids=[
        "another's envelope", "another contract", "another's reply", "for another contract",
        "another's request", "another's scores", "scores in another's name",
    ],
)  # fmt: skip
def test_nobody_can_put_words_into_its_journal(foreign: Envelope) -> None:
    # Else whoever can write to the mailbox could fill all slots of a member before it restarts.
    journal = MemoryJournal()
    ProtectedSigner(ME, signers()[ME], journal).adopt(DOMAIN, [foreign])
    assert journal.statements == {}
