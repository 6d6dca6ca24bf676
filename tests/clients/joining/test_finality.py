"""Whether a round is seen while it takes commitments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.joining.finality import closed_too_early
from ledger.chain.embedded.chain import EmbeddedChain

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


def test_a_window_that_is_over_when_its_round_is_final_takes_nobody_s_commitment(
    chain: EmbeddedChain,
) -> None:
    # Opened in block 6, seen when block 70 is there: block 71 is the 65th behind the opening one.
    assert closed_too_early(chain, None, 65) is None
    said = closed_too_early(chain, None, 64)
    assert said is not None
    assert "block 6 is the newest final one, 64 behind block 70" in said
    assert "--confirmations N, well under 64" in said


def test_a_depth_of_one_s_own_counts_in_place_of_what_the_chain_says(chain: EmbeddedChain) -> None:
    assert closed_too_early(chain, 2, 4) is None
    assert closed_too_early(chain, 3, 4) is None
    assert "takes commitments for 4 blocks only" in (closed_too_early(chain, 4, 4) or "")
    assert "takes commitments for 4 blocks only" in (closed_too_early(chain, 12, 4) or "")
