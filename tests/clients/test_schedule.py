"""The paper's schedule and the message-driven actors come to the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.runs.open_run import open_run
from ledger.protocol import ledger_state
from tests.clients.played import FIVE_MEMBERS, configured
from tests.clients.schedule import ScheduledRounds

if TYPE_CHECKING:
    from tests.clients.played import Player


def scheduled_head(player: Player, *settings: str) -> bytes:
    with open_run(player.home, "run", configured(*settings), player.chain, player.blobs) as run:
        ScheduledRounds(run).play()
        return run.simulation.head


@pytest.mark.parametrize(
    "settings",
    [
        (),
        FIVE_MEMBERS,
        ("protocol.strategy=3",),
        (*FIVE_MEMBERS, "malice.members.silent=1", "malice.members.wrong-proposal=2"),
        (*FIVE_MEMBERS, "malice.members.false-scores=3", "malice.trainers.not-finite=1"),
        (*FIVE_MEMBERS, "malice.trainers.silent=1", "malice.trainers.wrong-length=1"),
        ("malice.members.silent=3", "protocol.deadline_blocks=6"),
    ],
)
def test_the_schedule_and_the_actors_come_to_the_same_head(
    player: Player, other: Player, settings: tuple[str, ...]
) -> None:
    settings = ("protocol.rounds=3", *settings)
    # The head binds views, signers, both sets, every digest and every signature of the scores.
    played = player.play(*settings)
    assert played.ledger.state().stage is ledger_state.LedgerStage.FINISHED
    assert scheduled_head(other, *settings) == played.head


def test_equivocators_bring_both_to_the_same_certificates(player: Player, other: Player) -> None:
    # The actors also see votes that come after a quorum, which the schedule does not ask for.
    settings = (*FIVE_MEMBERS, "malice.members.equivocating=1", "protocol.rounds=2")
    played = player.play(*settings)
    scheduled_head(other, *settings)
    for number in (1, 2):
        told = [player.ledger().round_events(number), other.ledger().round_events(number)]
        first, second = (
            next(r.event for r in events if isinstance(r.event, ledger_state.RoundDecided))
            for events in told
        )
        assert (first.views, first.ranking) == (second.views, second.ranking)
        assert (first.signers, first.record) == (second.signers, second.record)
    assert played.ledger.bans()
