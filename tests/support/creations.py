"""Creations of the contract by other code than the artefact's."""

from __future__ import annotations

from ledger.chain.contract import abi
from ledger.chain.contract.deploy import constructor_values, creation_data
from ledger.chain.contract.ledger import LedgerWriter
from ledger.chain.ports import ChainWriter
from ledger.protocol.encoding import checksum, contract_created_by, to_canonical, words
from ledger.protocol.ledger_state import Deployment, domain_of
from ledger.protocol.signing import domain_separator
from ledger.protocol.types import NO_DIGEST, Address, Digest

GAS = 8_000_000
MODEL, HEAD, REGISTRY_REST = 3, 4, 6  # storage slots that the constructor writes
FLAGS = 9 + 12_288  # the first storage slot with flags of clients that have committed


def planted(
    chain: ChainWriter, deployment: Deployment, storage: dict[int, int], nonce: int = 0
) -> LedgerWriter:
    """Create a contract with the artefact's runtime code, and with more in its storage."""
    address = checksum(contract_created_by(to_canonical(chain.sender), nonce))
    contract = Address(to_canonical(address))
    domain = domain_of(deployment, chain.chain_id, contract, Digest(NO_DIGEST))
    immutables = words(domain_separator(domain), domain.salt, *constructor_values(deployment))
    code = abi.artifact().runtime + immutables
    slots = {
        MODEL: int.from_bytes(deployment.model),
        HEAD: int.from_bytes(deployment.config),
        REGISTRY_REST: int.from_bytes(deployment.registry),
        **storage,
    }
    writes = b"".join(
        b"\x7f" + value.to_bytes(32) + b"\x61" + slot.to_bytes(2) + b"\x55"  # SSTORE
        for slot, value in slots.items()
    )
    logs = (
        b"\x7f" + domain.salt + b"\x5f\x52\x7f" + abi.topic("LedgerDeployed") + b"\x60\x20\x5f\xa1"
    )
    size, start = len(code).to_bytes(2), len(writes) + len(logs) + 11
    returns = b"\x61" + size + b"\x80\x61" + start.to_bytes(2) + b"\x5f\x39\x5f\xf3"
    receipt = chain.send(None, writes + logs + returns + code, GAS)
    assert receipt.contract_address == address
    return LedgerWriter(chain, address, receipt.block_number)


def created_by_factory(chain: ChainWriter, deployment: Deployment) -> LedgerWriter:
    """Create the contract by the artefact's creation code, in another contract's constructor."""
    creation = creation_data(deployment)
    size = len(creation).to_bytes(2)
    factory = b"\x61" + size + b"\x80\x60\x0d\x5f\x39\x5f\x5f\xf0\x00\x00" + creation
    receipt = chain.send(None, factory, GAS)
    return LedgerWriter(chain, receipt.logs[0].address, receipt.block_number)
