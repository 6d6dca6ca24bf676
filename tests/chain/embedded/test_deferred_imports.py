"""Curves are imported by the first call of a contract that needs them, and change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

CALLS = """
import json, sys
if sys.argv[1] == "eager":
    import eth
from pathlib import Path
from ledger.chain.embedded.embedded_chain import EmbeddedChain
before, limit = "py_ecc" in sys.modules, sys.getrecursionlimit()
calls = json.load(sys.stdin)
with EmbeddedChain.create(Path(sys.argv[2])) as chain:
    done = [chain.execute(to, bytes.fromhex(data), gas=10**6) for to, data in calls]
found = [[one.is_error, one.output.hex(), one.get_gas_used()] for one in done]
same_limit = limit == sys.getrecursionlimit()
print(json.dumps({"before": before, "found": found, "limit": same_limit}))
"""
DOUBLED = (
    "030644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd3"
    "15ed738c0e0a7c92e7845f96b2ae9c0a68a6a449e3538fc7ff3ebf7a5a18a2c4"
)
"""Twice the generator (1, 2) of alt_bn128, as EIP-196's test vectors have it."""


def word(number: int) -> str:
    return number.to_bytes(32).hex()


def at(number: int) -> str:
    return f"0x{number:040x}"


# Address, input: sums and products of the generator, then of points at infinity, then no point.
INPUTS = (
    (at(6), word(1) + word(2) + word(1) + word(2)),
    (at(7), word(1) + word(2) + word(2)),
    (at(8), ""),
    (at(11), "00" * 256),
    (at(12), "00" * 160),
    (at(13), "00" * 512),
    (at(14), "00" * 288),
    (at(15), "00" * 384),
    (at(16), "00" * 64),
    (at(17), "00" * 128),
    (at(6), "ff" * 128),
)


def called(path: Path, how: str) -> dict[str, Any]:
    """Return what the precompiled contracts come to in a process of their own."""
    ended = subprocess.run(
        [sys.executable, "-c", CALLS, how, str(path / how)],
        input=json.dumps(INPUTS),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_deferred_contracts_come_to_what_py_evm_comes_to(tmp_path: Path) -> None:
    eager, deferred = called(tmp_path, "eager"), called(tmp_path, "deferred")
    assert (eager["before"], deferred["before"]) == (True, False)
    assert deferred["found"] == eager["found"]
    assert deferred["limit"]
    # EIP-1108: 150 gas for a sum, 6,000 for a product, 45,000 for no pairing at all, which holds.
    assert deferred["found"][:3] == [
        [False, DOUBLED, 150],
        [False, DOUBLED, 6_000],
        [False, word(1), 45_000],
    ]
    assert [is_error for is_error, _, _ in deferred["found"][:-1]] == [False] * 10
    assert deferred["found"][-1][0]
