"""Slashing protection: what keys have signed, on disk before it leaves, and the signer behind it.

A place is a slot: two different statements for it are equivocation. A process that restarts,
or runs twice on one journal, finds the earlier statement and can only repeat it.
"""

from __future__ import annotations

import logging
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from ledger.chain.round_ledger import LedgerSnapshot
from ledger.io.home import RunPaths
from ledger.protocol import canonical, types
from ledger.protocol.documents.envelope import Envelope, Proposal, PublishedScores, Reply
from ledger.protocol.errors import JournalError
from ledger.protocol.inputs import Inputs
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.signing import Signer, is_signed_by, sign

_log = logging.getLogger(__name__)

BUSY_SECONDS = 30.0  # that a journal waits for another process that holds it


class VoteJournal(Protocol):
    """One statement for each place."""

    def record(self, place: bytes, statement: bytes) -> bytes:
        """Return the first statement of a place, maybe this; nothing may leave before `sync`."""

    def sync(self) -> None:
        """Return once everything said is durable."""


class MemoryJournal:
    """A journal that dies with its process: for tests of what is worse than a crash."""

    def __init__(self) -> None:
        self.statements: dict[bytes, bytes] = {}

    def record(self, place: bytes, statement: bytes) -> bytes:
        return self.statements.setdefault(place, statement)

    def sync(self) -> None:
        """Nothing is durable here."""


class FileJournal:
    """A journal in one SQLite file, for any number of keys and processes.

    Everything said between two `sync` is one transaction, written with one fsync. The first
    statement takes the file's write lock, so that a second process waits and then finds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = 0
        with _naming(path):
            self._base = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            # FULL does not sync the folder after the rollback journal is unlinked: a power cut
            # could bring that back, and take a commit back whose votes have left.
            self._base.execute("PRAGMA synchronous = EXTRA")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS statements "
                "(place BLOB PRIMARY KEY, said BLOB NOT NULL) WITHOUT ROWID"
            )
            _require_all(self._base, path)

    def record(self, place: bytes, statement: bytes) -> bytes:
        with _naming(self._path):
            if not self._base.in_transaction:  # without a new statement, none is begun
                recorded = _statement(self._base, place)
                if recorded is not None:
                    return recorded
                self._base.execute("BEGIN IMMEDIATE")
                self._new = 0
            insertion = "INSERT OR IGNORE INTO statements VALUES (?, ?)"
            if self._base.execute(insertion, (place, statement)).rowcount:
                self._new += 1
                return statement
            recorded = _statement(self._base, place)
        assert recorded is not None, "a statement is recorded once it is said"
        return recorded

    def sync(self) -> None:
        """Write and fsync everything said since the last time."""
        with _naming(self._path):
            if self._base.in_transaction:
                self._base.execute(f"PRAGMA user_version = {_written(self._base) + self._new}")
                self._new = 0
                self._base.execute("COMMIT")

    def close(self) -> None:
        self._base.close()


def count_statements(path: Path) -> int:
    """Return how many statements a journal has, which is there."""
    with _opened(path) as base:
        return _require_all(base, path)


def begin_run(journal: VoteJournal, domain: types.Domain) -> None:
    """Record that a journal is of a run, before any of its keys signs anything."""
    journal.record(_place(domain, types.ClientId(0), ["run"]), b"")
    journal.sync()


def require_journal(paths: RunPaths, state: LedgerSnapshot, domain: types.Domain) -> None:
    """Refuse to sign for keys whose earlier statements are lost."""
    is_played = state.round > 1 or state.commitments != types.NO_DIGEST or paths.has_rows()
    if not is_played or state.stage is LedgerStage.FINISHED:
        return
    if paths.left_by_play() is None and not paths.has_rows():
        raise JournalError(
            f"run {paths.name!r} was played elsewhere, so its workers must continue it. To "
            f"continue here, restore its vote journal {paths.journal}; without it, the run's "
            "keys could sign conflicting statements"
        )
    is_begun = False
    if paths.journal.exists() and paths.journal.stat().st_size > 0:
        with _opened(paths.journal) as base:
            _require_all(base, paths.journal)
            is_begun = _statement(base, _place(domain, types.ClientId(0), ["run"])) is not None
    if not is_begun:
        raise JournalError(
            f"vote journal {paths.journal} is missing, empty or of another run, but run "
            f"{paths.name!r} was played; restore it, or start another run. Without it, the "
            "run's keys could sign conflicting statements"
        )


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    # Not read-only: a killed run may have left a transaction to be taken back.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with _naming(path), closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as base:
        yield base


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise JournalError(f"vote journal {path}: {error}") from error


def _statement(base: sqlite3.Connection, place: bytes) -> bytes | None:
    query = "SELECT said FROM statements WHERE place = ?"
    with closing(base.execute(query, (place,))) as rows:
        row = rows.fetchone()
    if row is not None and not isinstance(row[0], bytes):
        raise sqlite3.DataError("a statement is not bytes; restore the journal")
    return None if row is None else row[0]


def _written(base: sqlite3.Connection) -> int:
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _require_all(base: sqlite3.Connection, path: Path) -> int:
    """Return the number of statements, if all written ones are present."""
    # In this order: another process may write between the two.
    written = _written(base)
    (count,) = base.execute("SELECT count(*) FROM statements").fetchone()
    if count < written:
        raise JournalError(
            f"vote journal {path} has {count} of the {written} statements written to it; "
            "restore it in full. A damaged journal could let keys sign conflicting "
            "statements; a worker without a journal waits for the next round"
        )
    return int(count)


def vote_key(domain: types.Domain, member: types.ClientId, vote: types.Vote) -> bytes:
    """Return the place of a vote: its slot on one contract of one chain."""
    where = [str(vote.kind), vote.round, int(vote.phase), vote.view, vote.base]
    return _place(domain, member, where)


def scores_key(domain: types.Domain, scores: types.Scores) -> bytes:
    """Return the place of a score vector: one for each set of usable updates."""
    return _place(domain, scores.member, ["Scores", scores.round, scores.base, scores.clients])


def first_certificate_key(
    domain: types.Domain, member: types.ClientId, round_number: int, base: bytes
) -> bytes:
    """Return the place where a member keeps when it first saw a certificate of phase 1."""
    return _place(domain, member, ["first certificate", round_number, base])


def first_round_key(domain: types.Domain, client: types.ClientId) -> bytes:
    """Return the place of a key's first round here, whose earlier statements may be missing."""
    return _place(domain, client, ["beginning"])


def _place(domain: types.Domain, client: types.ClientId, where: list[object]) -> bytes:
    run = [domain.chain_id, domain.contract, domain.salt]
    return canonical.encode({"at": [*run, int(client), *where]})


class ProtectedSigner:
    """Signs for one client what its journal allows."""

    def __init__(self, client: types.ClientId, signer: Signer, journal: VoteJournal) -> None:
        self.client = client
        self._signer = signer
        self._journal = journal
        self._refused: set[bytes] = set()
        self._first_certificate: tuple[tuple[object, ...], float] | None = None

    def adopt(self, domain: types.Domain, envelopes: Iterable[Envelope]) -> None:
        """Record this client's statements that others have seen: a restored journal lacks them."""
        address = self._signer.address
        for envelope in envelopes:
            if envelope.client != self.client or envelope.domain != domain:
                continue
            match envelope.body:
                case PublishedScores(types.SignedScores(scores, signature), _):
                    is_own = is_signed_by(address, domain, scores, signature)
                    if scores.member == self.client and is_own:
                        self._journal.record(scores_key(domain, scores), scores.digest)
                case Proposal(request=cast) | Reply(cast):
                    vote = cast.vote
                    if is_signed_by(address, domain, vote, cast.signature):
                        place = vote_key(domain, self.client, vote)
                        self._journal.record(place, vote.set_digest + vote.result)
                case _:
                    pass
        self._journal.sync()

    def vote(self, domain: types.Domain, vote: types.Vote) -> types.SignedVote | None:
        """Return the signed vote, None if another was cast in its slot."""
        what = f"{vote.kind} in phase {vote.phase}, view {vote.view},".lower()
        place, statement = vote_key(domain, self.client, vote), vote.set_digest + vote.result
        if not self._may_sign(place, statement, f"{what} of round {vote.round}"):
            return None
        return types.SignedVote(self.client, vote, sign(self._signer, domain, vote))

    def scores(self, domain: types.Domain, scores: types.Scores) -> types.SignedScores | None:
        """Return the signed claim, None if another vector was signed for its set."""
        what = f"score vector of round {scores.round}"
        if not self._may_sign(scores_key(domain, scores), scores.digest, what):
            return None
        return types.SignedScores(scores, sign(self._signer, domain, scores))

    def first_certificate_time(self, inputs: Inputs, now: float) -> float:
        """Return when this client first saw a certificate of phase 1: now, if it never has."""
        about = inputs.domain, self.client, inputs.round, inputs.closing.base
        if self._first_certificate is None or self._first_certificate[0] != about:
            place = first_certificate_key(*about)
            (moment,) = struct.unpack(">d", self._journal.record(place, struct.pack(">d", now)))
            self._first_certificate = about, float(moment)
        return self._first_certificate[1]

    def _may_sign(self, place: bytes, statement: bytes, what: str) -> bool:
        """Record a statement; return False, logged once, if its place has a different one."""
        is_recorded = self._journal.record(place, statement) == statement
        if not is_recorded and place not in self._refused:
            self._refused.add(place)
            _log.warning(
                "client %d does not sign another %s: its vote journal has one of this run, or of "
                "an earlier chain with the same id, address and salt",
                self.client,
                what,
            )
        return is_recorded
