"""Environments of trainers, as a mailbox and a simulation's home have them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from clients.random_streams import simulated_signers
from clients.replay.recorded_environments import of_mailbox, of_simulation
from clients.runs.run_folder import run_folder
from ledger.io.home import Home
from ledger.protocol.documents.envelope import Envelope, PublishedEnvironment
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import sign
from ledger.protocol.types import (
    Address,
    ClientId,
    Digest,
    Domain,
    EnvironmentStatement,
    RegisteredClient,
)
from ledger.storage.mailbox import MemoryMailbox
from tests.clients.replay.support import here

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ledger.protocol.training_replay import TrainingEnvironment
    from tests.clients.played import Player

DOMAIN = Domain(1, Address(bytes(20)), Digest(bytes(32)))
SIGNERS = simulated_signers(0, 5)
HERE = here()
ELSEWHERE = replace(HERE, isa="another")
CLIENTS = [RegisteredClient(signer.address, 1) for signer in SIGNERS[:3]]


def stated(
    client: int,
    environment: TrainingEnvironment = HERE,
    *,
    round_number: int = 2,
    domain: Domain = DOMAIN,
    key: int | None = None,
) -> Envelope:
    """Return a client's statement, signed by its own key or another's."""
    statement = EnvironmentStatement(round_number, ClientId(client), environment.digest)
    signature = sign(SIGNERS[client if key is None else key], domain, statement)
    body = PublishedEnvironment(environment, signature)
    return Envelope(DOMAIN, round_number, ClientId(client), body)


def known(*envelopes: Envelope, client: int = 1) -> TrainingEnvironment | None:
    """Return what a mailbox with these envelopes says of a client in round 2."""
    mailbox = MemoryMailbox()
    for envelope in envelopes:
        mailbox.put(envelope)
    return of_mailbox(mailbox, DOMAIN, CLIENTS)(2, ClientId(client))


def test_a_clients_own_statement_for_the_round_counts() -> None:
    assert known(stated(1), stated(2, ELSEWHERE)) == HERE
    assert known(stated(1), stated(2, ELSEWHERE), client=2) == ELSEWHERE
    assert known(stated(1), client=0) is None
    assert known(stated(1, round_number=1)) is None


def test_a_statement_that_another_key_signed_does_not_count() -> None:
    assert known(stated(1, key=2)) is None
    assert known(stated(1), stated(1, ELSEWHERE, key=2)) == HERE


def test_a_statement_of_another_run_does_not_count() -> None:
    assert known(stated(1, domain=replace(DOMAIN, salt=Digest(bytes([1] * 32))))) is None


def test_a_client_that_nobody_registered_is_passed_over() -> None:
    assert known(stated(4), client=4) is None


def test_of_two_different_statements_neither_counts() -> None:
    assert known(stated(1), stated(1)) == HERE
    assert known(stated(1), stated(1, ELSEWHERE)) is None


def test_a_mailbox_that_cannot_be_read_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryMailbox):
        asked = 0

        def listed(self, *_: object, **__: object) -> Sequence[Envelope]:
            self.asked += 1
            raise OSError(5, "the store is away")

    mailbox = Away()
    environments = of_mailbox(mailbox, DOMAIN, CLIENTS)
    assert [environments(number, ClientId(1)) for number in (1, 1, 2)] == [None] * 3
    assert mailbox.asked == 1
    assert "the store is away" in caplog.text


def test_a_simulation_records_each_change(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "run")
    folder.paths.path.mkdir(parents=True)
    assert folder.environments() == []
    for number, environment in ((1, HERE), (4, HERE), (7, ELSEWHERE)):
        folder.record_environment(number, environment)
    assert folder.environments() == [(1, HERE), (7, ELSEWHERE)]
    of = of_simulation(folder.environments())
    assert [of(number, ClientId(0)) for number in (0, 1, 6, 7)] == [None, HERE, HERE, ELSEWHERE]


def test_a_round_begun_elsewhere_is_of_no_known_environment(
    other: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("protocol.rounds=2", "training.path=plain")
    while other.cut(*settings, left=1, after=True):
        if Home(other.home).deployed() and other.ledger().commitments(1):
            break
    monkeypatch.setattr("clients.runs.open_run.environment_of_run", lambda _: ELSEWHERE)
    played = other.play(*settings)
    environments = played.run.folder.environments()
    of = of_simulation(environments)
    first, second = (of(number, ClientId(0)) for number in (1, 2))
    assert first not in {environments[0][1], ELSEWHERE, None}
    assert second == ELSEWHERE


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b'{"round": 1}',
        b'{"round": 0, "torch": "t", "path": "plain", "processor": "p", "isa": "i", '
        b'"device": "cpu", "threads": 1}',
        b'{"round": 1, "torch": 5, "path": "plain", "processor": "p", "isa": "i", '
        b'"device": "cpu", "threads": 1}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_environment_is_named(tmp_path: Path, line: bytes) -> None:
    folder = run_folder(tmp_path, "run")
    folder.paths.path.mkdir(parents=True)
    folder.paths.environments.write_bytes(line + b"\n")
    with pytest.raises(ConfigurationError, match=r"environments\.jsonl, line 1"):
        folder.environments()
