"""`cmfl log anchor` and `cmfl audit --anchors`: rewritten histories, and false anchors."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import cmfl as package
from ledger.audit.anchored import ANCHOR_GAS, transaction_anchor
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.chain.rpc.server import RpcServer
from ledger.protocol.encoding import keccak256
from ledger.protocol.errors import ChainError
from tests.chain.test_port_contract import anvil
from tests.chain.web3_provider import transport_to
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds
from tests.patience import wait_until

pytestmark = pytest.mark.xdist_group("processes")
AUTHORITY = (
    "[tsa]\ndefault_tsa = a\n[a]\nserial = serial\nsigner_cert = tsa.pem\ncerts = ca.pem\n"
    "signer_key = tsa.key\nsigner_digest = sha256\ndefault_policy = 1.2.3\ndigests = sha256\n"
)
KEY = "req -newkey rsa:2048 -nodes -subj /CN=Authority"
SIGNING = "x509 -req -in tsa.csr -CA ca.pem -CAkey ca.key -extfile use -set_serial 2"


def openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


@dataclass(frozen=True)
class Anchored:
    """A run of two rounds with both anchors, and another with its keys, chain id and address."""

    folder: Path
    tsa: str
    block_hash: str

    def audit(self, home: str, anchors: Path, root: str = "ca.pem") -> tuple[object, ...]:
        given = ("--anchors", anchors, "--tsa-root", self.folder / root)
        return ("audit", "--json", "--home", self.folder / home, *given)


@pytest.fixture(scope="module")
def anchored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anchored]:
    folder: Path = tmp_path_factory.mktemp("anchored")
    for name, text in (
        ("cnf", AUTHORITY),
        ("serial", "01"),
        ("use", "extendedKeyUsage = critical"),
    ):
        (folder / name).write_text(text + ", timeStamping\n" * (name == "use"))
    for name in ("other", "ca"):
        openssl(folder, f"{KEY} -x509 -keyout {name}.key -out {name}.pem")
    openssl(folder, f"{KEY} -keyout tsa.key -out tsa.csr")
    openssl(folder, f"{SIGNING} -out tsa.pem")

    class Authority(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (folder / "query").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            openssl(folder, "ts -reply -config cnf -queryfile query -out reply")
            self.send_response(200 if self.path == "/" else 404)
            self.end_headers()
            self.wfile.write((folder / "reply").read_bytes())

        def log_message(self, *_: object) -> None: ...

    package.run("smoke", home=folder / "home", rounds=2, progress=False)
    manifest = json.loads((folder / "home" / "runs" / "run" / "deployment.json").read_text())
    same = ("--chain-id", manifest["chain_id"], "--rounds", 2, "--preset", "smoke")
    succeeds("run", "--set", "seed=1", "--home", folder / "forged", *same)
    given = ("log", "anchor", "--home", folder / "home", "--out")
    with (
        pytest.MonkeyPatch.context() as patch,
        EmbeddedChain.create(folder / "chain.sqlite", synchronous="NORMAL") as chain,
        RpcServer(chain) as server,
        ThreadingHTTPServer(("127.0.0.1", 0), Authority) as stamping,
    ):
        Thread(target=stamping.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{stamping.server_port}"
        patch.setenv("CMFL_PRIVATE_KEY", TEST_KEYS[1].hex())
        patch.setenv("CMFL_CHAIN_ID", "1")  # of the run's own chain
        succeeds(*given, folder / "block", "--rpc-url", server.url)
        succeeds(*given, folder / "token", "--tsa", url, "--tsa-root", folder / "ca.pem")
        yield Anchored(folder, url, f"0x{chain.head().hash.hex()}")
        stamping.shutdown()


@pytest.mark.parametrize("kind", ["block", "token"])
def test_a_history_that_all_keys_rewrote_fails_by_its_anchor(anchored: Anchored, kind: str) -> None:
    alone = succeeds("audit", "--home", anchored.folder / "forged", "--json").json
    right = succeeds(*anchored.audit("home", anchored.folder / kind)).json
    done = cmfl(*anchored.audit("forged", anchored.folder / kind))
    assert done.code == 1
    found, [anchor] = done.json["steps"][1]["contradiction"], done.json["anchors"]
    assert (found["fact"], found["round"]) == ("anchored head", 2)
    assert found["subject"] == anchor["file"]
    heads = found["recorded"], found["true"]
    assert heads == (right["deployment"]["head"], alone["deployment"]["head"])


def test_anchors_are_read_by_python_and_tokens_by_openssl(anchored: Anchored) -> None:
    where, root, folder = (anchored.folder / name for name in ("home", "ca.pem", "token"))
    for held, by in (
        (anchored.folder / "block", f"which must have the hash {anchored.block_hash}."),
        (folder, "a token of CN=Authority."),
    ):
        report = package.audit(where, anchors=held, tsa_root=root, progress=False)
        assert report.passed
        assert by in str(report.lines)
    [token], [entry] = folder.glob("*.tsr"), folder.glob("*.head")
    openssl(folder, f"ts -verify -in {token} -data {entry} -CAfile {root}")


def test_a_token_that_proves_nothing_is_refused(anchored: Anchored, tmp_path: Path) -> None:
    audit = anchored.audit("home", tmp_path)
    assert "has 0 of them, must be a folder with 1 to 1000 anchors" in refusal(*audit)
    shutil.copytree(anchored.folder / "token", tmp_path, dirs_exist_ok=True)
    [token], [entry] = tmp_path.glob("*.tsr"), tmp_path.glob("*.head")
    assert f"{token}: a token needs --tsa-root" in refusal(*audit[:-2])
    by_another = refusal(*anchored.audit("home", tmp_path, "other.pem"))
    assert "must be of this head, and of an authority that --tsa-root names" in by_another
    # It is of another head, and then a valid one of another run.
    entry.write_bytes(entry.read_bytes().replace(b"chain ", b"chain 1", 1))
    assert "the token must be of this head" in refusal(*audit)
    openssl(anchored.folder, f"ts -query -cert -sha256 -data {entry} -out query")
    openssl(anchored.folder, f"ts -reply -config cnf -queryfile query -out {token}")
    assert "; must be for " in refusal(*audit)
    token.write_bytes(token.read_bytes()[:-1])
    assert f"{token}: does not prove an anchored head " in refusal(*audit)
    entry.write_bytes(bytes(100_001))
    assert f"{entry}: has over 100000 bytes" in refusal(*audit)


def test_a_transaction_that_proves_nothing_is_refused(anchored: Anchored, tmp_path: Path) -> None:
    [path] = (anchored.folder / "block").iterdir()
    anchor = json.loads(path.read_text())
    for part, name, value in (
        (anchor, "transaction", anchor["transaction"][:-2]),
        (anchor, "index", "0x1"),
        (anchor["block"], "transactionsRoot", f"0x{'00' * 32}"),
        (anchor["block"], "timestamp", f"0x{'f' * 40}"),
        (anchor["block"], "gasUsed", None),
    ):
        true, part[name] = part[name], value
        (tmp_path / "a.json").write_text(json.dumps(anchor))
        assert "does not prove an anchored head " in refusal(*anchored.audit("home", tmp_path))
        part[name] = true


@pytest.mark.network
def test_a_block_of_another_program_proves_its_head(anchored: Anchored, tmp_path: Path) -> None:
    [entry] = (anchored.folder / "token").glob("*.head")
    for node in anvil(tmp_path, "--no-mining"):
        assert isinstance(node, RpcChain)
        ask = transport_to(node).ask
        for price in ("gasPrice", "maxFeePerGas"):  # of transactions of two types
            ask("eth_sendTransaction", {"from": ask("eth_accounts")[5], price: hex(10**11)})
        pending = node.submit(node.sender, entry.read_bytes(), ANCHOR_GAS)
        ask("evm_mine")
        receipt = wait_until(pending.poll)
        assert receipt is not None
        (block, sent), hash_ = node.whole_block(receipt.block_number), receipt.transaction_hash
        assert len(sent) == 3
        (tmp_path / "a.json").write_bytes(transaction_anchor(block, sent, hash_))
        succeeds(*anchored.audit("home", tmp_path))
        [other] = [each for each in sent if each[0] == 2 and keccak256(each) != hash_]
        (tmp_path / "a.json").write_bytes(transaction_anchor(block, sent, keccak256(other)))
        assert "from an account to itself" in refusal(*anchored.audit("home", tmp_path))
        for false, left in ((block, sent[:2]), ({**block, "gasUsed": "0x1"}, sent)):
            with pytest.raises(ChainError, match="but its block is not proven"):
                transaction_anchor(false, left, hash_)


def test_a_head_goes_to_one_place_that_answers(anchored: Anchored, tmp_path: Path) -> None:
    given = ("log", "anchor", "--home", anchored.folder / "home", "--out", tmp_path)
    root = ("--tsa-root", anchored.folder / "other.pem")
    for options in ((), root, ("--tsa", anchored.tsa)):
        assert "needs --rpc-url, or --tsa with --tsa-root" in refusal(*given, *options)
    assert "status 404" in refusal(*given, "--tsa", f"{anchored.tsa}/none", *root)
    assert "that --tsa-root names" in refusal(*given, "--tsa", anchored.tsa, *root)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    elsewhere = (*given[:-1], tmp_path / "file", "--rpc-url", anchored.tsa)
    assert refusal(*elsewhere).startswith(f"--out {tmp_path / 'file'}: ")
