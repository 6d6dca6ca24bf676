"""What an auditor gets of logs and witnesses: quorums, ages, the future, splits, and liars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger.transparency.network import collect, publish
from ledger.transparency.notes import (
    Checkpoint,
    KeyUse,
    SignedCheckpoint,
    SigningKey,
    cosign,
    sign_checkpoint,
)
from ledger.transparency.policy import SKEW_SECONDS, CheckpointEvidence, parse_policy, weigh
from ledger.transparency.tree import EMPTY_ROOT, origin_of
from ledger.transparency.witness import origin_hash
from tests.transparency.serving import Answers, Clock, log_at, lying, witness_at
from tests.transparency.support import (
    DOMAIN,
    LOG,
    NOW,
    ORIGIN,
    OTHER_LOG,
    WITNESSES,
    checkpoint,
    entries,
    policy_text,
)

DAY = 86_400
A, B, C = WITNESSES


def weighed(*signed: SignedCheckpoint, quorum: str = "2", now: float = NOW) -> CheckpointEvidence:
    return weigh(parse_policy(policy_text(quorum).encode()), signed, now, DAY)


def test_a_quorum_stands_for_its_checkpoint() -> None:
    found = weighed(checkpoint(5, by=[A, B]))
    assert found.witnessed is not None
    assert found.witnessed.checkpoint == checkpoint(5).checkpoint
    assert (found.witnessed.witnesses, found.witnessed.time) == (("W0", "W1"), NOW)


def test_one_witness_counts_once_however_often_it_signs() -> None:
    twice = [checkpoint(5, by=[A], time=NOW - age) for age in range(3)]
    assert weighed(*twice).witnessed is None
    assert weighed(*twice, quorum="1").witnessed is not None


def test_old_words_and_words_from_the_future_do_not_count() -> None:
    for time in (NOW - DAY - 1, NOW + SKEW_SECONDS + 1):
        found = weighed(checkpoint(5, by=[A, B], time=time))
        assert found.witnessed is None
        assert len(found.failures) == 3
    for time in (NOW - DAY, NOW + SKEW_SECONDS):
        assert weighed(checkpoint(5, by=[A, B], time=time)).witnessed is not None


def test_a_larger_checkpoint_without_a_quorum_is_held_against_the_run_too() -> None:
    found = weighed(checkpoint(8, by=[A]), checkpoint(5, by=[A, B]))
    assert found.witnessed is not None
    assert found.witnessed.checkpoint.size == 5
    assert [each.size for each in found.checkpoints] == [8, 5]


def test_two_trees_of_one_size_are_a_conflict() -> None:
    found = weighed(checkpoint(5, by=[A, B]), checkpoint(5, fork=3))
    assert found.conflict() == (checkpoint(5).checkpoint, checkpoint(5, fork=3).checkpoint)
    assert weighed(checkpoint(5), checkpoint(6)).conflict() is None


def test_a_false_line_spoils_its_note_alone() -> None:
    good, bad = checkpoint(5, by=[A, B]), checkpoint(5)
    false = cosign(checkpoint(6).note.text, A, NOW)
    spoilt = type(bad)(bad.checkpoint, bad.note.with_signatures([false]), bad.by_log)
    found = weighed(spoilt, good)
    assert found.witnessed is not None
    assert "W0" in found.witnessed.witnesses


def collected(
    urls: Sequence[str],
    places: Sequence[str] = (),
    quorum: str = "2",
    log: str = "",
    now: float = NOW,
) -> CheckpointEvidence:
    policy = parse_policy(policy_text(quorum, urls, log).encode())
    return collect(policy, policy.logs, places, lambda: now, DAY)


def test_witnesses_say_again_as_of_now_what_they_cosigned_long_ago(tmp_path: Path) -> None:
    """A run that ended a year ago: nobody publishes it any more, and witnesses are still there."""
    clock = Clock(NOW - 365 * DAY)
    with witness_at(tmp_path / "0", A, clock) as a, witness_at(tmp_path / "1", B, clock) as b:
        publish(entries(5), LOG, tmp_path / "log", parse_policy(policy_text("2", [a, b]).encode()))
        with log_at(tmp_path / "log") as log:
            offline = collected([], [str(tmp_path / "log")])
            assert offline.witnessed is None
            assert "hours old" in offline.failures[0]
            clock.now = NOW
            found = collected([a, b], log=log)
    assert found.witnessed is not None
    assert (found.witnessed.time, found.failures) == (NOW, ())


def test_witnesses_that_a_killed_publisher_did_not_reach_say_what_they_have(tmp_path: Path) -> None:
    """One witness has six rounds, and the others were not asked; ten days later all are there."""
    clock = Clock()
    with (
        witness_at(tmp_path / "0", A, clock) as a,
        witness_at(tmp_path / "1", B, clock) as b,
        witness_at(tmp_path / "2", C, clock) as c,
    ):
        for count, urls in ((5, [a, b, c]), (6, [a])):
            known = parse_policy(policy_text("any", urls).encode())
            publish(entries(count), LOG, tmp_path / "log", known)
        clock.now += 10 * DAY
        found = collected([a, b, c], now=clock.now)
    assert [each.size for each in found.checkpoints] == [6, 5]
    assert found.witnessed is not None
    assert found.witnessed.checkpoint.size == 5
    assert (found.witnessed.witnesses, found.witnessed.time) == (("W1", "W2"), clock.now)


def test_an_old_checkpoint_in_the_hands_of_its_log_is_not_the_newest(tmp_path: Path) -> None:
    """The owner serves what witnesses cosigned an hour ago, and they have seen more since."""
    with witness_at(tmp_path / "0", A) as a, witness_at(tmp_path / "1", B) as b:
        policy = parse_policy(policy_text("2", [a, b]).encode())
        publish(entries(5), LOG, tmp_path / "log", policy)
        old = (tmp_path / "log" / "checkpoint").read_bytes()
        publish(entries(8), LOG, tmp_path / "log", policy)
        (tmp_path / "log" / "checkpoint").write_bytes(old)
        found = collected([a, b], [str(tmp_path / "log")])
    assert found.witnessed is not None
    assert found.witnessed.checkpoint.size == 8


def test_a_size_that_no_witness_shows_is_withheld() -> None:
    """Its word is not signed, so it proves nothing, and is not passed over either."""
    with lying(Answers({"/add-checkpoint": (409, b"8\n")})) as url:
        found = collected([url], quorum="1")
        assert (found.withheld, found.witnessed) == ((), None)
    note = checkpoint(5, by=[A, B]).note.encoded()
    answers = Answers(
        {"/add-checkpoint": (409, b"8\n"), f"/{origin_hash(ORIGIN)}/checkpoint": (200, note)}
    )
    with lying(answers) as url:
        found = collected([url])
        assert found.witnessed is not None
        assert len(found.withheld) == 1
        # One that has seen fewer is behind, and says nothing against it.
        answers.by_path["/add-checkpoint"] = (409, b"3\n")
        assert collected([url]).withheld == ()


def test_a_log_that_goes_on_meanwhile_is_asked_for_its_newest_again() -> None:
    """Between two questions the log has published: nothing is withheld, it is shown."""
    newest = f"/{origin_hash(ORIGIN)}/checkpoint"
    notes = [checkpoint(size, by=[A, B]).note.encoded() for size in (5, 8)]

    class Moving(Answers):
        def of(self, path: str) -> tuple[int, bytes]:
            if path == newest:
                return 200, notes.pop(0)
            return 409, b"8\n"

    with lying(Moving()) as url:
        found = collected([url])
    assert (found.withheld, [each.size for each in found.checkpoints]) == ((), [8, 5])
    assert found.witnessed is not None
    assert found.witnessed.checkpoint.size == 8


def test_two_logs_of_one_run_are_asked_for_apart(tmp_path: Path) -> None:
    """Two publishers, one witness for both: each log has a newest checkpoint of its own."""
    name = origin_of("mirror.example", DOMAIN)
    mirror = SigningKey(name, KeyUse.NOTE, bytes([8] * 32))
    keys = [LOG.verifier, mirror.verifier]
    with witness_at(tmp_path / "0", A, logs=keys) as url:
        text = f"log {mirror.verifier}\n{policy_text('1', [url])}"
        policy = parse_policy(text.encode())
        publish(entries(5), LOG, tmp_path / "log", policy)
        publish(entries(3), mirror, tmp_path / "mirror", policy)
        found = collect(policy, policy.logs, (), lambda: NOW, DAY)
    assert found.failures == ()
    assert [(each.origin, each.size) for each in found.checkpoints] == [(ORIGIN, 5), (name, 3)]


def test_servers_that_fail_are_named_once_each() -> None:
    with lying(Answers({f"/{origin_hash(ORIGIN)}/checkpoint": (500, b"")})) as url:
        note = checkpoint(5, by=[A, B]).note.encoded()
        with lying(Answers({"/checkpoint": (200, note)})) as log:
            found = collected([url], log=log)
    assert found.witnessed is not None
    assert [failure.partition(": ")[2][:11] for failure in found.failures] == [
        "status 500 ",
        "status 404,",
    ]


@pytest.mark.parametrize(
    "note",
    [
        sign_checkpoint(Checkpoint(OTHER_LOG.name, 5, EMPTY_ROOT), OTHER_LOG).note.encoded(),
        sign_checkpoint(Checkpoint(ORIGIN, 5, EMPTY_ROOT), OTHER_LOG).note.encoded(),
        b"",
        b"nonsense",
        b"x" * 150_000,
    ],
    ids=["another log", "another key", "nothing", "nonsense", "too long"],
)
def test_a_witness_that_answers_something_else_is_named(note: bytes) -> None:
    with lying(Answers({f"/{origin_hash(ORIGIN)}/checkpoint": (200, note)})) as url:
        found = collected([url], quorum="1")
    assert (found.checkpoints, found.witnessed) == ((), None)
    assert len(found.failures) == 1


@pytest.mark.parametrize("status", [200, 404, 500])
def test_no_failure_shows_what_may_be_a_key(status: int) -> None:
    """Failures are in reports, which are handed on; a token may be in any part of a URL."""
    answers = Answers({"/token/checkpoint?token": (status, b"nonsense")})
    answers.by_path[f"/token/{origin_hash(ORIGIN)}/checkpoint?token"] = (status, b"nonsense")
    with lying(answers) as url:
        secret = f"{url.replace('://', '://user:token@')}/token?token"
        found = collected([secret], [secret, "http://token@[/token"], log=secret)
    assert len(found.failures) >= 2
    assert not [failure for failure in found.failures if "token" in failure]


def test_an_unknown_witness_does_not_count() -> None:
    stranger = SigningKey("w1.example", KeyUse.COSIGNATURE, bytes([99] * 32))
    assert weighed(checkpoint(5, by=[A, stranger])).witnessed is None
