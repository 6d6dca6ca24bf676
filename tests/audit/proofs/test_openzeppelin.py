"""Our proof of an update as OpenZeppelin's own code sees it, in JavaScript and on an EVM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from eth_abi.abi import encode

from ledger.audit.proofs.documents import proof_bytes, read_proof
from ledger.audit.proofs.proof import ClientProof
from ledger.audit.proofs.recorded import make_proof
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.encoding import UPDATE_LEAF, keccak256, word_client
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import ClientId
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.audit.runs import Run

SCRIPT = Path(__file__).with_name("openzeppelin.mjs")
SOURCE = Path(__file__).with_name("update_verifier.sol")
TYPES = ["bytes32[]", "bytes32", *UPDATE_LEAF]
SELECTOR = keccak256(f"verify({','.join(TYPES)})".encode())[:4]


def openzeppelin() -> tuple[str, str]:
    node, modules = shutil.which("node"), os.environ.get("CMFL_OPENZEPPELIN")
    needed = ("@openzeppelin/merkle-tree", "@openzeppelin/contracts", "solc")
    if node is None or modules is None or not all(Path(modules, one).is_dir() for one in needed):
        pytest.skip(f"no node on PATH, or CMFL_OPENZEPPELIN names no folder with {needed}")
    return node, modules


def leaf_of(proof: ClientProof) -> tuple[ClientId, bytes, int, int, bool]:
    """Return the leaf of a ranked update, out of what its proof says."""
    rank, payload = proof.statement.rank, proof.payload
    assert rank is not None
    assert payload is not None
    return proof.client, payload, rank.place, rank.distance_bits, rank.accepted


@pytest.mark.network
def test_openzeppelin_accepts_every_proof_and_no_other_rank(honest: Run, tmp_path: Path) -> None:
    node, modules = openzeppelin()
    event = honest.ledger.round_events(5)[-1].event
    assert isinstance(event, RoundDecided)
    proofs = [
        read_proof(proof_bytes(make_proof(honest.ledger, honest.blobs, 5, word_client(word))))
        for word in event.ranking
    ]
    leaves = [leaf_of(proof) for proof in proofs]
    siblings = [proof.siblings or () for proof in proofs]
    asked = {
        "types": list(UPDATE_LEAF),
        "leaves": [[c, f"0x{p.hex()}", r, str(bits), a] for c, p, r, bits, a in leaves],
        "proofs": [[f"0x{one.hex()}" for one in path] for path in siblings],
        "root": f"0x{event.updates_root.hex()}",
    }
    done = subprocess.run(
        [node, str(SCRIPT), modules, str(SOURCE)],
        input=json.dumps(asked),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["root"] == asked["root"]
    assert seen["proofs"] == asked["proofs"]
    assert seen["accepted"] == [True] * len(proofs)
    assert seen["refused"] == [False] * len(proofs)
    with EmbeddedChain.create(tmp_path / "chain.sqlite", synchronous="NORMAL") as chain:
        code = bytes.fromhex(seen["bytecode"])
        verifier = chain.send(None, code, 2_000_000).contract_address
        assert verifier is not None
        for leaf, path in zip(leaves, siblings, strict=True):
            values = [list(path), event.updates_root, *leaf]
            assert answer(chain, verifier, values)
            values[4] = leaf[2] + 1
            assert not answer(chain, verifier, values)


def answer(chain: EmbeddedChain, verifier: str, values: list[Any]) -> bool:
    return bool(int.from_bytes(chain.call(verifier, SELECTOR + encode(TYPES, values))))
