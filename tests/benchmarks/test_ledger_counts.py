"""What a round makes the embedded chain do does not grow unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.ledger_counts import COUNTS, round_counts, transaction_counts

COMMITTED = json.loads(COUNTS.read_text("utf-8"))


def test_a_transaction_executes_as_many_opcodes_as_before(tmp_path: Path) -> None:
    counts = transaction_counts(tmp_path)
    assert counts == {name: COMMITTED[name] for name in counts}


@pytest.mark.slow
def test_a_round_reads_and_waits_as_often_as_before(tmp_path: Path) -> None:
    counts, committed = round_counts(tmp_path), dict(COMMITTED["round"])
    # Reads depend on the tries, and these on the ranking, whose last digits differ by processor.
    assert counts.pop("chain file reads") <= 1.25 * committed.pop("chain file reads")
    assert counts == committed
