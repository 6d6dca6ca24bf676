"""`make nodes`: the same run on every development node of this machine, with equal heads.

Members equivocate and are banned, another publishes false scores, trainers send nothing or no
update. The process of the run is killed in the middle and started again. The contract and the
record are then checked from afar: by node, address and blobs. With `beacon = none` no block enters
a seed, so every node has to arrive at the same head.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clients.testnet.network import (
    ANVIL_TEST_KEY,
    ENTRY,
    KEY_VARIABLE,
    MODULES,
    free_port,
    wait_for_port,
)
from ledger.chain.contract.ledger import CommitteeLedger, read_manifest
from ledger.chain.embedded.evm import TEST_KEYS
from ledger.chain.rpc.node import RpcReader
from ledger.io.home import Home
from ledger.io.processes import CommandError, CommandProcess, CommandRunner
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ChainError
from ledger.protocol.signing import KeySigner
from tests.patience import wait_until

TOOLS = Path(__file__).parents[2] / ".ci" / "tools"
CHAIN_ID = 31337
DEPLOYER = checksum(KeySigner(ANVIL_TEST_KEY).address)
ROUNDS, KILLED_AFTER = 10, 4
SETTINGS = (
    *("protocol.beacon=none", f"protocol.rounds={ROUNDS}", "protocol.clients=16"),
    "protocol.active_rate=0.75",
    *("malice.members.equivocating=2", "malice.members.false-scores=1"),
    *("malice.trainers.not-finite=1", "malice.trainers.silent=1"),
)
FINDINGS = {"ban", "equivocation", "false scores", "dropout"}
"""What the audit has to name: the run's faults took place."""

KINDS: dict[str, tuple[str, ...]] = {
    "embedded": ("cmfl",),
    "anvil-prague": ("anvil", "--hardfork", "prague"),
    "anvil-osaka": ("anvil", "--hardfork", "osaka"),
    "anvil-optimism": ("anvil", "--optimism"),
    "hardhat2": ("hardhat2",),
    "hardhat3-l1": ("hardhat3", "--chain-type", "l1", "--chain-id", f"{CHAIN_ID}"),
    "hardhat3-op": ("hardhat3", "--chain-type", "op", "--chain-id", f"{CHAIN_ID}"),
}
"""A kind's program, and the options that make it this kind."""

COLUMNS = ("node", "version", "resumed after", "bans", "code", "audit", "seconds", "head")


class MissingNodeError(Exception):
    """A node's program is not on this machine."""


@dataclass(frozen=True)
class Played:
    """What a node has come to: the cells of its row, the head, and whether the run is right."""

    cells: tuple[object, ...]
    head: str
    is_right: bool


def node_command(kind: str, port: int, tools: Path = TOOLS) -> list[object]:
    """Return the command of a node of some kind that is not embedded; raise MissingNodeError."""
    program, *options = KINDS[kind]
    if program == "anvil":
        here = tools / "anvil"
        anvil = os.environ.get("CMFL_ANVIL") or (here if here.exists() else shutil.which("anvil"))
        if anvil is None:
            raise MissingNodeError("there is no anvil on PATH, and CMFL_ANVIL names none")
        return [anvil, "--port", port, *options]
    folder, own_node = tools / program, tools / program / "node_modules/.bin/node"
    node = own_node if own_node.exists() else shutil.which("node")
    package = folder / "node_modules" / "hardhat"
    if node is None or not package.exists():
        raise MissingNodeError(f"there is no {package}: .ci/nodes.sh {program} installs it")
    ways = ("dist/src/cli.js", "internal/cli/cli.js")  # of Hardhat 3 and 2
    cli = next(package / way for way in ways if (package / way).exists())
    listens = ("node", *options, "--hostname", "127.0.0.1", "--port", port)
    return ["/usr/bin/env", "-C", folder, "CI=1", node, cli, *listens]


@contextmanager
def started(kind: str, home: Path, processes: CommandRunner) -> Iterator[str]:
    """Start a node whose first account is the deployer's, and yield its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    if KINDS[kind] == ("cmfl",):
        words = ["chain", "serve", "--home", home, "--port", port, "--chain-id", CHAIN_ID]
        node = processes.start("node", words)
        wait_for_port(port, node)
        fund = ["chain", "fund", DEPLOYER, "--amount", 10, *on(url)]
        processes.run("fund", fund, environment={KEY_VARIABLE: TEST_KEYS[0].hex()})
    else:
        node = processes.start("node", node_command(kind, port), is_program=True)
        wait_for_port(port, node)
    try:
        yield url
    finally:
        node.end()


def on(url: str) -> list[object]:
    return ["--rpc-url", url, "--chain-id", CHAIN_ID]


def played(kind: str, folder: Path) -> Played:
    """Play the run on a fresh node, and check it from afar; CommandError for a bad verdict."""
    begun, home = time.monotonic(), folder / "home"
    with (
        CommandRunner(ENTRY, folder / "logs", MODULES) as processes,
        started(kind, folder / "node", processes) as url,
        RpcReader(url, chain_id=CHAIN_ID) as node,
    ):
        key = {KEY_VARIABLE: ANVIL_TEST_KEY.hex()}
        words = [word for setting in SETTINGS for word in ("--set", setting)]
        deploy = ["deploy", "--home", home, "--preset", "smoke", *words, *on(url)]
        processes.run("deploy", deploy, environment=key)
        address = read_manifest(Home(home).run("run").manifest).address
        ledger = CommitteeLedger(node, address)
        resume = ["run", "--resume", "--home", home, *on(url)]
        killed = killed_after(processes.start("killed", resume, environment=key), ledger)
        processes.run("run", resume, environment=key)
        remote = [*on(url), "--address", address, "--json"]
        code = json.loads(processes.run("verify", ["contract", "verify", *remote]))
        auditing = ["audit", *remote, "--blobs", Home(home).blobs]
        audit = json.loads(processes.run("audit", auditing))
        counts, bans = audit["finding_counts"], len(ledger.bans())
        version, seconds = node.client_version().split("/@")[0], time.monotonic() - begun
        verdict = f"{audit['outcome']}, {sum(counts.values())} findings"
        published = "published" if code["is_published_code"] else "another"
        return Played(
            (kind, version, f"round {killed}", bans, published, verdict, f"{seconds:.0f}"),
            audit["deployment"]["head"],
            (audit["rounds"], bans) == (ROUNDS, 2) and counts.keys() >= FINDINGS,
        )


def killed_after(run: CommandProcess, ledger: CommitteeLedger) -> int:
    """Kill a run in its middle, and return how many of its rounds had ended."""

    def is_there() -> bool:
        return run.code() is not None or ledger.state().round > KILLED_AFTER

    wait_until(is_there, run.log_tail)
    run.signal(signal.SIGKILL)
    if run.wait(60) != -signal.SIGKILL or (ended := ledger.state().round - 1) >= ROUNDS:
        raise CommandError(f"the run has ended before it was killed: {run.log_tail()}")
    return ended


def is_equal_everywhere(results: Sequence[Played]) -> bool:
    """Return whether there is a run, all of them are right, and their heads are equal."""
    return len({one.head for one in results}) == 1 and all(one.is_right for one in results)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chain.nodes", description=__doc__)
    parser.add_argument("kind", nargs="*", help=f"of {', '.join(KINDS)}; all if not given")
    kinds: list[str] = parser.parse_args(arguments).kind or [*KINDS]
    for kind in kinds:
        if kind not in KINDS:
            parser.error(f"{kind!r} is not a kind of node: give one of {', '.join(KINDS)}")
    results, has_failed = list[Played](), False
    say_row(*COLUMNS)
    say_row(*("---" for _ in COLUMNS))
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix=f"{kind}-") as folder:
            try:
                found = played(kind, Path(folder))
                results.append(found)
                say_row(*found.cells, found.head)
            except MissingNodeError as error:
                say_row(kind, f"skipped: {error}")
            except (ChainError, CommandError, AssertionError) as error:
                has_failed = True
                say_row(kind, f"FAILED: {error}")
    if has_failed or not is_equal_everywhere(results):
        say("FAILED: a run is wrong, heads differ, or no node is here")
        return 1
    say(f"{len(results)} nodes have the same head")
    return 0


def say_row(*cells: object) -> None:
    say(f"| {' | '.join(map(str, cells))} |")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
