"""What is signed for one deployment is worth nothing for the next one at the same address."""

from __future__ import annotations

from typing import Any, cast

import pytest
from eth_abi.abi import decode, encode

from ledger.chain.contract import abi
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter
from ledger.protocol import encoding
from ledger.protocol.errors import RefusalCode
from ledger.protocol.ledger_state import registry_batches
from ledger.protocol.signing import NAME, VERSION
from ledger.protocol.types import NO_DIGEST, Beacon, ClientId
from tests.contracts import support
from tests.contracts.revm_chain import RevmChain
from tests.contracts.twins import Shape, Twins, registry_of

ANSWER = ["bytes1", "string", "string", "uint256", "address", "bytes32", "uint256[]"]


@pytest.mark.parametrize("beacon", Beacon)
def test_the_contract_answers_its_domain_by_eip_5267(
    embedded_chain: EmbeddedChain, beacon: Beacon
) -> None:
    embedded_chain.mine(1)
    twins = Twins.opened(embedded_chain, Shape(beacon=beacon))
    domain = twins.ledger.domain()
    assert domain == twins.state.domain
    answer = embedded_chain.call(twins.ledger.address, abi.call_data("eip712Domain"))
    fields, name, version, chain_id, contract, salt, extensions = decode(ANSWER, answer)
    assert (fields, name, version, extensions) == (b"\x1f", NAME, VERSION, ())
    named: Any = (chain_id, bytes.fromhex(contract[2:]), salt)
    assert named == (domain.chain_id, domain.contract, domain.salt)
    assert answer[:32] == encode(["bytes1"], [b"\x1f"]), "the ABI of the standard, a flat answer"


def test_the_salt_follows_from_configuration_registry_and_beacon(
    embedded_chain: EmbeddedChain,
) -> None:
    for beacon in Beacon:
        embedded_chain.mine(1)
        parent = embedded_chain.head()
        words = [encoding.registry_word(client) for client in registry_of(13)]
        fixed = Shape(beacon=beacon).deployment(registry_batches(words)[0])
        twins = Twins(embedded_chain, fixed, ())
        hashed = parent.hash if beacon is Beacon.BLOCK else bytes(32)
        assert twins.ledger.deployment_parent_hash() == hashed
        assert twins.state.domain.salt == encoding.keccak256(fixed.config + fixed.registry + hashed)


def test_two_runs_at_one_address_take_nothing_of_each_other() -> None:
    # The first contract of every chain in memory has one address, as that of a restarted one has.
    one, other = (
        Twins.opened(cast("ChainWriter", RevmChain()), Shape(aggregation_ppm=ppm))
        for ppm in (500_000, 400_000)
    )
    domains = [twins.state.domain for twins in (one, other)]
    assert domains[0].contract == domains[1].contract
    assert domains[0].chain_id == domains[1].chain_id
    assert domains[0].salt != domains[1].salt != NO_DIGEST
    promised = support.commitment(one, ClientId(3))
    assert other.commit(1, [promised]) is RefusalCode.COMMITMENT_NOT_SIGNED
    report = support.equivocation(one, ClientId(3))
    assert other.report(report) is RefusalCode.STATEMENT_NOT_SIGNED
    for twins in (one, other):
        own = support.commitment(twins, ClientId(3))
        assert isinstance(twins.commit(1, [own]), tuple)
        assert isinstance(twins.report(support.equivocation(twins, ClientId(4))), tuple)
