"""Whether a round is seen while it takes commitments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.onboarding.readiness import FinalityLag, finality_lag
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import Block

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Lagging(EmbeddedChain):
    """A chain that calls a block final when 64 others stand on it, as anvil does."""

    def finalized(self) -> int:
        return max(0, self.head().number - 64)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[EmbeddedChain]:
    with Lagging.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        chain.mine(70)
        yield chain


def test_a_window_closed_before_finality_takes_nobodys_commitment(chain: EmbeddedChain) -> None:
    # Opened in block 6, seen when block 70 is there: block 71 is the 65th behind the opening one.
    lag = finality_lag(chain, None)
    assert lag.closed_too_early(65) is None
    said = lag.closed_too_early(64)
    assert said is not None
    assert "block 6 is the newest final one, 64 behind block 70" in said
    assert "--confirmations N, well under 64" in said


def test_a_given_depth_overrides_the_chains_finality(chain: EmbeddedChain) -> None:
    assert finality_lag(chain, 2).closed_too_early(4) is None
    assert finality_lag(chain, 3).closed_too_early(4) is None
    for depth in (4, 12):
        said = finality_lag(chain, depth).closed_too_early(4)
        assert "takes commitments for 4 blocks only" in (said or "")


def test_commitments_final_after_the_first_view_are_reported() -> None:
    # Two blocks of twelve seconds each stand on a block before it is final: by pencil, 24 seconds.
    final, newest = (Block(n, bytes(32), bytes(32), 1_000 + 12 * n) for n in (7, 9))
    lag = FinalityLag(final, newest)
    assert lag.seen_too_late(25) is None
    assert "is 24 s older than the newest one, and the first view begins 24 s after" in (
        lag.seen_too_late(24) or ""
    )
