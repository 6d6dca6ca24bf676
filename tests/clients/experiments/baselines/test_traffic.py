"""What a round sends, and on which link it waits."""

from __future__ import annotations

from clients.experiments.baselines.traffic import (
    PhaseCounter,
    RoundTraffic,
    TrafficLink,
    TrafficPhase,
    federated_traffic,
    recorded_traffic,
)
from ledger.protocol.types import ClientId

A, B, C = map(ClientId, range(3))


def test_a_phase_takes_its_busiest_links_busier_direction() -> None:
    phase = TrafficPhase(
        "pull", {A: TrafficLink(received=5, sent=90), B: TrafficLink(received=70, sent=70)}
    )
    assert phase.busiest == 90
    assert TrafficPhase("nothing", {}).busiest == 0


def test_a_round_waits_for_each_phase_in_turn() -> None:
    first = TrafficPhase("up", {A: TrafficLink(sent=10), B: TrafficLink(sent=30)}, requests=2)
    second = TrafficPhase("down", {A: TrafficLink(received=20)}, requests=1)
    traffic = RoundTraffic((first, second))
    assert traffic.busiest == 30 + 20
    assert traffic.requests == 3
    assert traffic.links() == {A: TrafficLink(received=20, sent=10), B: TrafficLink(sent=30)}
    assert traffic.total == TrafficLink(received=20, sent=40)


def test_a_question_and_its_answer_go_over_both_links() -> None:
    counter = PhaseCounter("ask")
    counter.ask(A, B, question=8, answer=100)
    counter.ask(A, C, question=8, answer=50)
    assert counter.phase() == TrafficPhase(
        "ask",
        {
            A: TrafficLink(received=150, sent=16),
            B: TrafficLink(received=8, sent=100),
            C: TrafficLink(8, 50),
        },
        requests=2,
    )


def test_typical_fl_takes_one_model_down_and_one_update_up() -> None:
    traffic = federated_traffic((A, C), dimension=100)
    assert traffic.links() == {A: TrafficLink(400, 408), C: TrafficLink(400, 408)}
    assert traffic.busiest == 400 + 408


def test_a_row_keeps_plain_sums_over_the_run() -> None:
    two = [federated_traffic((A, C), dimension=100), federated_traffic((B, C), dimension=100)]
    assert recorded_traffic(two, dimension=100) == {
        "model": 400,
        "busiest": 1616,
        "phases": {"model": 800, "updates": 816},
        "sent": 1632,
        "received": 1600,
        "requests": 0,
        "by_round": [808, 808],
        "clients": [0, 1, 2],
        "client_sent": [408, 408, 816],
        "client_received": [400, 400, 800],
    }
