"""The commands of `console` blocks are executed too, or stand in a table with the reason.

Their placeholders become a node, a store, keystores, registered owners, and small data files. What
serves until Ctrl-C is a real process: it prints its first line, is interrupted, and ends with 0.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from api.settings import Settings
from clients.configuration.loading import load
from clients.configuration.owners import shared_configuration
from clients.onboarding.registration import encode_entry, proposal_digest, signed_entry
from clients.random_streams import simulated_keys, simulated_signers
from ledger.chain.addresses import checksum
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.embedded.genesis import DEFAULT_CHAIN_ID, TEST_KEYS
from ledger.chain.rpc.server.http_server import RpcServer
from tests.api.conftest import serving
from tests.cmfl.commands.conftest import cmfl, settings_of, succeeds
from tests.cmfl.commands.test_worker import stopped_once_it_runs
from tests.docs.test_code_blocks import PAGES, PASSWORD, ROOT, blocks, lines_of
from tests.support.keys import write_keystore
from tests.transparency.support import LOG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.processes import Forks

pytestmark = pytest.mark.group("processes")

NOT_EXECUTED = {
    "make ": "a whole installation, the whole suite, or hours; the continuous integration calls it",
    "pip install": "needs the network; tests/packaging holds the names of the extras",
    "pip wheel": "the same; make wheel builds one and installs it",
    "python3 -m venv": "an environment of its own; make wheel and make demo make one",
    "anvil ": "a foreign node; tests/chain plays on it",
    "geth ": "a foreign node that is not installed",
    "besu ": "a foreign node that is not installed",
    "openssl ": "makes a key; tests/docs/test_code_blocks.py makes one",
    "model_signing ": "a foreign program; tests/cmfl/commands/test_signed_models.py runs it",
    "ray ": "a cluster of several machines; tests/clients/training plays on one",
    "cmfl run --set machine.engine=ray": "a cluster of several machines",
    "flower-": "Flower has an environment of its own; tests/flower plays it there",
    "FLWR_": "Flower has an environment of its own; tests/flower plays it there",
    "cmfl run --preset digits --set machine.engine=flower": "the same",
    "cmfl flower new": "writes projects of Flower; tests/cmfl/commands/test_flower.py does",
    "cmfl audit --home digits-app": "needs that project's run",
    "cmfl run --set machine.isa=": "a processor with AVX2; tests/clients/replay plays another cap",
    "cmfl verify training --home capped": "needs that run",
    "cmfl data fetch": "needs the network; tests/clients/datasets plays it against a local server",
    "cmfl experiment run all": "minutes to hours",
    "cmfl experiment run robustness-worst": "an hour; tests/cmfl/commands plays it quickly",
    "cmfl experiment run normal": "an hour, and the real FEMNIST",
    "cmfl experiment audit": "needs rows that take an hour; tests/clients/experiments plays one",
    "cmfl experiment plot": "rows take hours; tests/cmfl/commands/test_experiment.py plots some",
    "cmfl experiment report": "rows take hours; tests/cmfl/commands/test_experiment.py has some",
    "cmfl experiment list robustness --data": "needs the real FEMNIST",
    "python -m tests.federation": "hours; tests/federation plays a short one",
    "python -m benchmarks.paper": "reads rows of hours; tests/benchmarks plays each",
    "cmfl network": "a minute of twelve processes; tests/cmfl/commands/test_network.py plays it",
    "CMFL_ANVIL=": "a minute of twelve processes; tests/cmfl/commands/test_network.py plays it",
    "cmfl run --preset paper-": "needs real data of gigabytes, and hours",
    "cmfl run --preset authors-": "needs real data of gigabytes, and hours",
    "cmfl blobs copy --home HOME --to s3": "needs an object store; tests/storage plays one",
    "cmfl blobs prune --home HOME --blobs s3": "needs an object store; tests/storage plays one",
    "cmfl watch": "a federation at work; tests/cmfl/commands/test_watch.py watches one",
    "cmfl verify training": "owners who have played; tests/cmfl/commands/test_verify_training.py",
}
"""First words of commands that no test of a page executes, and why."""

SERVES = (
    *("cmfl serve", "cmfl blobs serve", "cmfl chain serve"),
    *("cmfl log serve", "cmfl witness serve"),
)
CLIENTS = 12
OWN = (
    "protocol.beacon=block",
    "data.name=own",
    "data.options.shape=[4]",
    "data.options.classes=3",
    "training.path=plain",
    "protocol.commit_blocks=5000",
    "protocol.deadline_blocks=10000",
)


def console_lines(page: Path) -> list[str]:
    """Return the commands of a page's console blocks without their remarks."""
    lines = [
        line for language, text in blocks(page) if language == "console" for line in lines_of(text)
    ]
    return [re.split(r"\s+#\s", line)[0].strip() for line in lines]


def reason_for(line: str) -> str | None:
    return next((why for start, why in NOT_EXECUTED.items() if line.startswith(start)), None)


@cache
def all_lines() -> tuple[str, ...]:
    return tuple(line for page in PAGES for line in console_lines(page))


def executed_pages() -> list[Path]:
    return [page for page in PAGES if any(reason_for(line) is None for line in console_lines(page))]


@pytest.mark.parametrize("start", NOT_EXECUTED)
def test_a_command_with_a_reason_is_in_a_page(start: str) -> None:
    assert any(line.startswith(start) for line in all_lines()), f"remove {start!r}"


@dataclass(frozen=True)
class World:
    """What the placeholders of the pages stand for.

    Attributes:
        values: of the placeholders.
        finished: a home with a finished run.
        files: keys, entries, a registry, settings and samples, which each page gets a copy of.
    """

    values: dict[str, str]
    finished: Path
    files: Path


def write_files(folder: Path) -> None:
    """Write what an owner, a deployer and a researcher have in their folder."""
    (folder / "entries").mkdir(parents=True)
    (folder / "password").write_text(PASSWORD)
    smoke = load("smoke", settings=("protocol.beacon=block",))
    (folder / "run.toml").write_text(smoke.to_toml())
    federation = shared_configuration("smoke", settings=OWN, allow_predictable=False)
    (folder / "fed.toml").write_text(federation.to_toml())
    agreed = proposal_digest(federation)
    for client, signer in enumerate(simulated_signers(0, CLIENTS)):
        entry = signed_entry(signer, "fed", agreed, 10)
        (folder / "entries" / f"{client}.json").write_bytes(encode_entry(entry))
    rng = np.random.default_rng(1)
    labels = np.arange(240) % 3
    samples = rng.normal(size=(240, 4)).astype(np.float32)
    np.savez(folder / "own.npz", allow_pickle=True, x=samples[:10], y=labels[:10])
    np.savez(folder / "mine.npz", allow_pickle=True, x=samples, y=labels)
    table = ["a,b,c,d,species"]
    table += [
        f"{','.join(map(str, row))},{label}" for row, label in zip(samples, labels, strict=True)
    ]
    (folder / "mine.csv").write_text("\n".join(table))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a node with a run of owners, a store, a service, and everybody's files."""
    folder = tmp_path_factory.mktemp("console")
    finished, files = folder / "first", folder / "files"
    succeeds("run", "--preset", "smoke", "--home", finished)
    write_files(files)
    keys = simulated_keys(0, CLIENTS)
    write_keystore(files / "me.json", keys[0])
    write_keystore(files / "payer.json", TEST_KEYS[0])
    with (
        EmbeddedChain.create(folder / "node.sqlite") as chain,
        RpcServer(chain, block_seconds=0.2) as server,
        serving(Settings(home=finished)) as service,
        pytest.MonkeyPatch.context() as patch,
    ):
        node = ["--rpc-url", server.url, "--chain-id", DEFAULT_CHAIN_ID]
        patch.chdir(files)
        payer = ["--keystore", "payer.json", "--password-file", "password"]
        succeeds("registry", "gather", "entries", "--out", "registry.json", "--config", "fed.toml")
        settings = ["--config", "fed.toml", *settings_of(f"protocol.clients={CLIENTS}")]
        home, owners = ["--home", folder / "deployed"], ["--registry", "registry.json"]
        deployed = succeeds(
            "deploy", *owners, "--run", "fed", *settings, *home, *node, *payer, "--json"
        )
        me = checksum(simulated_signers(0, CLIENTS)[0].address)
        succeeds("chain", "fund", me, "--amount", 1, *node, *payer)
        yield World(
            {
                "ADDRESS...": f"0x{'11' * 20} 0x{'22' * 20}",
                "--keystore FILE": "--keystore payer.json --password-file password",
                "--password-file secret.txt": "--password-file password",
                "samples.npz": "own.npz",
                "--rpc-url URL": f"--rpc-url {server.url}",
                "--rpc-url http://127.0.0.1:8545": f"--rpc-url {server.url}",
                "--chain-id N": f"--chain-id {DEFAULT_CHAIN_ID}",
                "--chain-id 1337": f"--chain-id {DEFAULT_CHAIN_ID}",
                "0x...": deployed.json["address"],
                "--blobs PLACE": f"--blobs {folder / 'deployed' / 'blobs'}",
                "--mailbox PLACE": f"--mailbox {folder / 'mail'}",
                "--blobs https://store.example": f"--blobs {folder / 'deployed' / 'blobs'}",
                "--mailbox https://store.example": f"--mailbox {folder / 'mail'}",
                "--api http://127.0.0.1:8000": f"--api {str(service.base_url).rstrip('/')}",
                "HOME": "first",
                "--run NAME": "--run run",
                "--folder DIR": "--folder store",
                "log serve DIR": "log serve entries",
                "VKEY": str(LOG.verifier),
                "--host 0.0.0.0 --port 8600": "--port 0",
                "PATH": str(ROOT / "tests" / "fixtures" / "hugging_face" / "femnist"),
            },
            finished,
            files,
        )


@pytest.mark.parametrize("page", executed_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_console_commands_of_a_page_do_what_they_say(
    page: Path, world: World, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(world.files, folder)
    for home in ("first", "deployed"):
        shutil.copytree(world.finished, folder / home)
    if any("registry gather" in line for line in console_lines(page)):
        (folder / "registry.json").unlink()
    monkeypatch.chdir(folder)
    for line in console_lines(page):
        if reason_for(line) is not None:
            continue
        text = line
        for placeholder, value in world.values.items():
            text = text.replace(placeholder, value)
        if line.startswith("cmfl doctor"):
            text = text.replace("--password-file password", "")
        words = shlex.split(text)
        assert words[0] == "cmfl", f"only cmfl is run here, and the rest has a reason: {line}"
        if line.startswith(SERVES):
            ended = interrupted(forks, words[1:])
            assert ended[0] == 0, (line, ended)
        elif line.startswith("cmfl worker"):
            with stopped_once_it_runs(folder / "my-worker"):
                assert cmfl(*words[1:]).code == 0, line
        else:
            result = cmfl(*words[1:])
            assert result.code == 0, (line, result.out, result.err)


def interrupted(forks: Forks, arguments: list[str]) -> tuple[int, str, str]:
    """Return how a process ended that was interrupted after its first line."""
    port = [] if "--port" in arguments else ["--port", "0"]
    with forks.start(*arguments, *port) as process:
        process.first_line()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert process.returncode is not None
        return process.returncode, out, err
