"""Where a round's inputs end: it follows from the chain alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol.encoding import commitments_chain, sha256
from ledger.protocol.inputs import MinedCommitment, RoundClosing, round_closing
from ledger.protocol.types import ClientId
from tests.support.keys import ids

OPENED, WINDOW = 100, 4


def mined(block: int, client: int) -> MinedCommitment:
    return MinedCommitment(block, ClientId(client), sha256(b"%d" % client))


def closing(*commitments: MinedCommitment, final: int = 200) -> RoundClosing | None:
    """Return the closing of a round in which clients 1, 2 and 3 are active."""
    return round_closing(OPENED + WINDOW, ids(1, 2, 3), final, commitments)


def test_it_is_open_while_the_closing_block_is_not_final() -> None:
    everyone = (mined(101, 1), mined(101, 2), mined(103, 3))
    assert closing(*everyone, final=102) is None
    assert closing(*everyone, final=103) is not None
    assert closing(mined(101, 1), final=103) is None
    assert closing(mined(101, 1), final=104) is not None


def test_without_a_commitment_the_base_is_zero() -> None:
    assert closing() == RoundClosing(104, commitments_chain([]), {})


entries = st.lists(st.tuples(st.integers(101, 104), st.integers(0, 6)), max_size=8)


@given(drawn=entries, strays=entries, final=st.integers(101, 110))
def test_neither_strays_nor_time_move_what_is_closed(
    drawn: list[tuple[int, int]], strays: list[tuple[int, int]], final: int
) -> None:
    def chain(entries: list[tuple[int, int]]) -> list[MinedCommitment]:
        once = {client: block for block, client in sorted(entries, reverse=True)}
        return [mined(block, client) for client, block in sorted(once.items(), key=lambda x: x[1])]

    # Clients 4 and up are not active: wherever they commit, the closing block is the same.
    found = closing(*chain(drawn), final=final)
    others = [(block, 10 + client) for block, client in strays]
    again = closing(*chain(drawn + others), final=final)
    assert (found is None) == (again is None)
    if found is None or again is None:
        return
    assert found.block == again.block <= final
    assert {c for c in again.commitments if c < 10} == set(found.commitments)
    later = closing(*chain(drawn), final=final + 1)
    assert later == found


def test_where_somebody_is_late_the_window_closes_it() -> None:
    found = closing(mined(101, 2), mined(101, 1))
    assert found is not None
    assert (found.block, set(found.commitments)) == (104, {1, 2})
