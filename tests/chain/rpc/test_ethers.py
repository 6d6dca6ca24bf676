"""The served chain as programs in JavaScript see it: ethers, from npm, in a real node process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ledger.chain.contract.deploy import DEPLOYMENT_GAS, creation_data, deployment_for
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS, address_of
from ledger.chain.rpc.server import RpcServer
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.parameters import Parameters
from tests.chain.probe import deploy
from tests.contracts.twins import digest_of, registry_of
from tests.patience import PATIENCE_SECONDS

ARTEFACT = Path(__file__).parents[3] / "contracts" / "artifacts" / "committee_ledger.json"
SCRIPT = Path(__file__).with_name("ethers_client.mjs")
PARAMETERS = Parameters(
    clients=20,
    active_ppm=500_000,
    committee_ppm=400_000,
    aggregation_ppm=500_000,
    rounds=3,
    dimension=6,
)
DOCUMENT = RunDocument(PARAMETERS, registry_of(20), digest_of("model"), (("weight", (6,)),), {})


def ethers() -> tuple[str, str]:
    node, modules = shutil.which("node"), os.environ.get("CMFL_ETHERS")
    if node is None or modules is None or not Path(modules, "ethers").is_dir():
        pytest.skip("no node on PATH, or CMFL_ETHERS names no node_modules folder with ethers")
    return node, modules


@pytest.mark.network
def test_ethers_reads_calls_sends_waits_and_listens(tmp_path: Path) -> None:
    node, modules = ethers()
    fixed, [batch] = deployment_for(DOCUMENT)
    with (
        EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain) as server,
    ):
        address = chain.send(None, creation_data(fixed), DEPLOYMENT_GAS).contract_address
        assert address is not None
        probe = deploy(chain)
        command = [node, str(SCRIPT), modules, server.url, str(ARTEFACT), address, probe]
        command += ["0x" + TEST_KEYS[5].hex(), json.dumps([str(word) for word in batch.words])]
        done = subprocess.run(
            [*command, "0x" + batch.rest.hex()],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        opening = CommitteeLedger(chain, address).opening(1)
        block, genesis = chain.header(3), chain.header(0)
        transaction = "0x" + bytes(chain.transactions(block)[0].hash).hex()
        (creation,) = chain.transactions(chain.header(1))
    assert opening is not None
    assert seen["chainId"] == str(chain.chain_id)
    assert seen["genesis"]["hash"] == "0x" + chain.genesis_hash.hex()
    assert len(bytes.fromhex(seen["genesis"]["beaconRoot"][2:])) == 32
    assert int(seen["feeData"]["maxFeePerGas"]) >= (genesis.base_fee_per_gas or 0) // 2
    assert (seen["before"]["stage"], seen["after"]["stage"]) == ("0", "1")
    assert seen["deployment"]["clients"] == "20"
    assert seen["sent"] == {
        "from": address_of(TEST_KEYS[5]),
        "block": 3,
        "status": 1,
        "paid": str(block.base_fee_per_gas),
        "events": ["ClientsRegistered", "LedgerOpened"],
    }
    committee = [str(client) for client in opening.committee]
    assert seen["event"] == {"block": 3, "committee": committee}
    assert seen["prefetched"] == [transaction]
    created = "0x" + bytes(creation.hash).hex()
    assert seen["logs"] == [created, transaction, transaction]
    assert seen["queried"] == ["0"]
    assert seen["reverted"]["code"] == "CALL_EXCEPTION"
    assert seen["reverted"]["reason"] == "committee_ledger: deadline is not reached"
    assert seen["refused"] == "NONCE_EXPIRED"
