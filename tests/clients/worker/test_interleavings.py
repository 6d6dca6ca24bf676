"""No interleaving of workers makes a key contradict itself, or keeps a run from its end."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.protocol.documents.envelope import EnvelopeKind
from ledger.protocol.ledger_state import LedgerStage, RoundDecided
from tests.clients.worker.together import ROOMY, Together, hosted_by
from tests.faults import times

WORKERS = 5
SHORT = replace(ROOMY, rounds=2)


@dataclass(frozen=True)
class Deed:
    """What one worker does in a turn.

    Attributes:
        sleeps: it is frozen, or starved.
        left: it dies after so many envelopes; None to live on.
        lost: so many of its next envelopes reach nobody.
        held: it gets no mail.
        restarts: it is killed between two steps, and begun again.
        loses: kinds of which nothing that it says reaches anybody.
    """

    sleeps: bool = False
    left: int | None = None
    lost: int = 0
    held: bool = False
    restarts: bool = False
    loses: frozenset[EnvelopeKind] = frozenset()


Script = list[tuple[list[Deed], float, bool]]

deeds = st.one_of(
    st.just(Deed()),
    st.just(Deed()),
    st.just(Deed(sleeps=True)),
    st.integers(0, 6).map(lambda left: Deed(left=left)),
    st.integers(1, 8).map(lambda lost: Deed(lost=lost)),
    st.integers(1, 8).map(lambda lost: Deed(lost=lost, restarts=True)),
    st.just(Deed(held=True)),
    st.just(Deed(held=True, restarts=True)),
    st.just(Deed(restarts=True)),
)
turns = st.tuples(
    st.lists(deeds, min_size=WORKERS, max_size=WORKERS),
    st.sampled_from([0.0, 1.0, 2.0, 4.0]),
    st.booleans(),
)
"""What each worker does, how many seconds pass, and whether the store answers late."""


def turn(together: Together, does: list[Deed], seconds: float, is_down: bool) -> None:
    together.blobs.is_down = is_down and seconds > 2
    for number, deed in enumerate(does):
        place = together.places[number]
        place.mail.held = deed.held
        place.mail.lost = deed.lost
        place.mail.loses = deed.loses
        if deed.restarts:
            together.restart(number)
        if not deed.sleeps:
            together.step(number, deed.left)
    together.pass_time(seconds)


REQUESTS, VECTORS = EnvelopeKind.REQUEST, EnvelopeKind.SCORES


def vector_after_request(slow: int) -> Script:
    """Return how whoever has asked once and begins anew holds more than when it asked.

    Nobody gets the request, and the vectors of the slow worker come after it: what a primary would
    ask for now is another record, in the same view.
    """
    everybody = Deed(loses=frozenset({REQUESTS}))
    before = [everybody] * WORKERS
    before[slow] = Deed(loses=frozenset({REQUESTS, VECTORS}))
    after = [replace(everybody, restarts=True)] * WORKERS
    return [(before, 1.0, False)] * 13 + [(after, 0.5, False)] * 4


CALM: dict[str, Any] = {"calm": 1, "skews": [0.0] * WORKERS, "confirmations": 0, "frozen": None}


@settings(max_examples=times(3, 400))
@example(script=vector_after_request(0), **CALM)
@example(script=vector_after_request(1), **CALM)
@given(
    script=st.lists(turns, max_size=40),
    calm=st.integers(0, 6),
    skews=st.lists(st.sampled_from([-4.0, 0.0, 0.0, 4.0]), min_size=WORKERS, max_size=WORKERS),
    confirmations=st.sampled_from([0, 0, 2]),
    frozen=st.none() | st.integers(0, WORKERS - 1),
)
def test_keys_stay_consistent_and_the_run_continues_whatever_happens(
    script: Script, calm: int, skews: list[float], confirmations: int, frozen: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        together = Together(Path(folder), hosted_by(WORKERS), SHORT, confirmations=confirmations)
        for place, skew in zip(together.places, skews, strict=True):
            place.skew = skew
        for _ in range(calm):
            turn(together, [Deed()] * WORKERS, 1.0, False)
        for does, seconds, is_down in script:
            # Two statements for one place are refused where they leave.
            turn(together, does, seconds, is_down)
        together.blobs.is_down = False
        for place in together.places:
            place.mail.held, place.mail.lost, place.mail.loses = False, 0, frozenset()
        together.play(places=[number for number in range(WORKERS) if number != frozen])
        assert together.ledger.state().stage is LedgerStage.FINISHED, "the run stands still"
        assert [event.round for event in together.ends] == [1, 2]
        assert not together.ledger.bans(), "somebody honest was banned"
        models = [together.ledger.deployment().model]
        models += [event.model for event in together.ends if isinstance(event, RoundDecided)]
        assert len(set(models)) == len(models), "a round was decided twice, or on nothing"
