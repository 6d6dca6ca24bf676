"""Creation code of a deployer that returns the contract's code, and leaves words in storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.chain.addresses import contract_created_by, to_canonical
from ledger.chain.contract import abi
from ledger.chain.contract.deployment import creation_data
from ledger.protocol.ledger_state import domain_of
from ledger.protocol.signing import domain_separator
from ledger.protocol.types import Address, Digest
from tests.contracts.twins import DEPLOYMENT_GAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.chain.embedded.embedded_chain import EmbeddedChain
    from ledger.protocol.ledger_state import Deployment

MODEL, HEAD, REGISTRY_REST = 3, 4, 6
FLAG_WORDS = 9 + 12_288
"""Storage slots of the contract: the first word of flags follows the registry."""


def planting_creation(
    chain: EmbeddedChain, deployment: Deployment, planted: Mapping[int, int]
) -> bytes:
    """Return creation code that leaves the contract as its constructor does, and further words."""
    honest = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
    assert honest.contract_address is not None
    sender, nonce = to_canonical(chain.sender), chain.next_nonce()
    own, theirs = (
        domain_of(deployment, chain.chain_id, Address(address), Digest(bytes(32)))
        for address in (contract_created_by(sender, nonce), to_canonical(honest.contract_address))
    )
    runtime = chain.code(honest.contract_address)
    assert runtime.count(domain_separator(theirs)) == 1
    runtime = runtime.replace(domain_separator(theirs), domain_separator(own))
    words = {
        MODEL: int.from_bytes(deployment.model),
        HEAD: int.from_bytes(deployment.config),
        REGISTRY_REST: int.from_bytes(deployment.registry),
        **planted,
    }
    stores = b"".join(
        b"\x7f" + word.to_bytes(32) + b"\x61" + slot.to_bytes(2) + b"\x55"
        for slot, word in words.items()
    )
    logged = (
        b"\x7f" + own.salt + b"\x5f\x52\x7f" + abi.topic("LedgerDeployed") + b"\x60\x20\x5f\xa1"
    )
    begin = stores + logged
    size, offset = len(runtime).to_bytes(2), (len(begin) + 12).to_bytes(2)
    returned = b"\x61" + size + b"\x80\x61" + offset + b"\x5f\x39\x5f\xf3"
    return begin + returned.ljust(12, b"\x00") + runtime
