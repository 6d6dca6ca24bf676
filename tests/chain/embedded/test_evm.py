"""The chain that is made here is the one that eth-tester makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from eth.constants import BLANK_ROOT_HASH
from eth.db.atomic import AtomicDB
from eth.db.backends.memory import MemoryDB
from eth_tester.backends.pyevm.main import (  # type: ignore[import-untyped]
    get_default_genesis_params,
    setup_tester_chain,
)
from eth_utils.exceptions import ValidationError

from ledger.chain.embedded import evm
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from tests.chain.probe import deploy, words
from tests.patience import PATIENCE_SECONDS

BALANCES = {bytes([1]) * 20: 10**27, bytes([2]) * 20: 1}
GAS_LIMIT = 200_000_000


def test_genesis_forks_and_next_header_are_eth_testers() -> None:
    parameters = get_default_genesis_params({"gas_limit": GAS_LIMIT, "timestamp": 1_700_000_000})
    _, template = setup_tester_chain(genesis_params=parameters, num_accounts=1)
    parameters["parent_beacon_block_root"] = evm.BEACON_ROOT
    state: Any = {
        address: {"balance": balance, "nonce": 0, "code": b"", "storage": {}}
        for address, balance in BALANCES.items()
    }
    theirs = type(template).configure("Theirs", chain_id=7)
    chain = theirs.from_genesis(AtomicDB(MemoryDB()), parameters, state)
    genesis = chain.get_canonical_head()
    found, _ = evm.make_genesis(7, GAS_LIMIT, 1_700_000_000, BALANCES)
    ours = evm.chain_class(7)
    assert found == genesis.hash
    [(begin, mine)], [(_, prague)] = ours.vm_configuration, theirs.vm_configuration
    assert (begin, mine.__mro__[1]) == (0, prague)
    own = {name for name in vars(mine) if not name.startswith("_")}
    assert own & set(dir(prague)) == {"validate_header"}
    assert ours.chain_id == 7
    same = ours.from_genesis(AtomicDB(MemoryDB()), parameters, state)
    after: Any = {"timestamp": 1_700_000_001, "parent_beacon_block_root": evm.BEACON_ROOT}
    ahead = [one.create_header_from_parent(genesis, **after) for one in (chain, same)]
    assert ahead[0] == ahead[1]
    assert ahead[1].gas_limit == GAS_LIMIT


def test_blocks_may_share_a_second_and_keep_every_other_rule() -> None:
    machine = evm.chain_class(7).vm_configuration[0][1]
    _, values = evm.make_genesis(7, GAS_LIMIT, 1_700_000_000, BALANCES)
    chain = evm.chain_class(7)(AtomicDB(MemoryDB(values)))
    parent = chain.get_canonical_head()
    after: Any = {"timestamp": 1_700_000_000 + 5, "parent_beacon_block_root": evm.BEACON_ROOT}
    header = chain.create_header_from_parent(parent, **after)
    machine.validate_header(header, parent)
    same = header.copy(timestamp=parent.timestamp)
    machine.validate_header(same, parent)
    for broken in (
        same.copy(timestamp=parent.timestamp - 1),
        same.copy(block_number=5),
        same.copy(gas_limit=2 * GAS_LIMIT),
        same.copy(difficulty=1),
    ):
        with pytest.raises(ValidationError):
            machine.validate_header(broken, parent)


def test_a_chain_with_the_earlier_beacon_root_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(evm, "BEACON_ROOT", BLANK_ROOT_HASH)
        with EmbeddedChain.create(tmp_path / "chain.sqlite") as chain:
            probe = deploy(chain)
    with EmbeddedChain.open(tmp_path / "chain.sqlite") as chain:
        assert chain.header(1).parent_beacon_block_root == BLANK_ROOT_HASH
        chain.send(probe, words(1, 2), 200_000)
        assert chain.header().hash == chain.head().hash
        chain.verify(execute=True)


CALLS = """
import json, sys
if sys.argv[1] == "eager":
    import eth
from pathlib import Path
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.reader import ContractCall
before, limit = "py_ecc" in sys.modules, sys.getrecursionlimit()
calls = json.load(sys.stdin)
with EmbeddedChain.create(Path(sys.argv[2])) as chain:
    done = [chain.execute(ContractCall(to, bytes.fromhex(data), gas=10**6)) for to, data in calls]
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
