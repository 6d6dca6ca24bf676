"""Every code block of README and docs does what it shows, and every command named is there.

`sh` and `python` blocks of a page are executed in order, in a folder with a finished run in
`first`, a `password`, a key to sign with, and a federation's settings in `fed.toml`. The commands
of `console` blocks (`test_console_blocks` executes those that can be) and those quoted in the text
must exist, with their options, make targets and modules.
"""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import shlex
import shutil
import time
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from api.settings import Settings
from clients.onboarding import keystores
from cmfl.commands.application import app
from ledger.chain.embedded.embedded_reader import EmbeddedReader
from ledger.chain.rpc.server.http_server import RpcServer
from ledger.transparency.keys import parse_vkey
from tests.api.conftest import serving
from tests.cmfl.commands.conftest import cmfl, succeeds
from tests.support.keys import write_keystore
from tests.transparency.serving import witness_at
from tests.transparency.support import WITNESSES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PASSWORD = "correct horse battery staple"
NOT_RUN = {"text", "toml", "nginx", "mermaid", "json"}
FOREIGN = {
    "flower-superlink",
    "flower-supernode",
    "flwr",
    "anvil",
    "geth",
    "besu",
    "ray",
    "python3",
    "source",
    "twine",
    "git",
    "openssl",
    "model_signing",
}
SMALLER = {"README.md": ("    rounds=10,\n)", "    rounds=1,\n)")}
"""What is played smaller than it is shown: sixteen runs of one round do what those of ten do."""
_BLOCK = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`(cmfl [a-z][^`]*)`")
_VARIABLE = re.compile(r"^[A-Z_]+=\S* ")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each block of a page."""
    return [(language, text) for _, language, text in _BLOCK.findall(page.read_text("utf-8"))]


def lines_of(text: str) -> list[str]:
    """Return the commands of a block, continued lines joined, comments left out."""
    joined = text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"]


def executed(page: Path) -> list[tuple[str, str]]:
    return [(language, text) for language, text in blocks(page) if language in {"sh", "python"}]


@cache
def root_command() -> Any:
    return typer.main.get_command(app)


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def faults(line: str) -> list[str]:
    """Return what a command line names that is not there."""
    words = shlex.split(_VARIABLE.sub("", line), comments=True)
    program, arguments = words[0], words[1:]
    if program == "cmfl":
        return faults_of_cmfl(arguments)
    if program == "make":
        return [word for word in arguments if word not in targets() and "=" not in word]
    if program == "python" and arguments[0] == "-m":
        return [] if importlib.util.find_spec(arguments[1]) else [arguments[1]]
    if program == "python":
        return [] if (ROOT / arguments[0]).exists() else [arguments[0]]
    return [] if program in FOREIGN | {"pip", "npm"} else [program]


def faults_of_cmfl(arguments: list[str]) -> list[str]:
    command, path = root_command(), ["cmfl"]
    options = {"--help"} | {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    missing = []
    for word in arguments:
        if word in {"|", ">", "&&", ";"}:
            break
        children: dict[str, Any] = getattr(command, "commands", {})
        if word.startswith("-") and word not in {"-", "--"}:
            name = word.partition("=")[0]
            missing += [] if name in options else [f"{' '.join(path)} {name}"]
        elif children and len(path) < 3:
            for name in word.split("|"):
                if name not in children and name != "...":
                    return [f"{' '.join(path)} {name}"]
            if word == "..." or "|" in word:
                break
            command = children[word]
            path.append(word)
            options |= {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    return missing


@each_page
def test_every_block_has_a_language_that_is_known(page: Path) -> None:
    known = NOT_RUN | {"sh", "python", "console"}
    assert [language for language, _ in blocks(page) if language not in known] == []


@each_page
def test_every_command_of_a_console_block_is_there(page: Path) -> None:
    lines = [
        line for language, text in blocks(page) if language == "console" for line in lines_of(text)
    ]
    assert [(line, fault) for line in lines for fault in faults(line)] == []


@each_page
def test_every_command_quoted_in_the_text_is_there(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text("utf-8"))
    quoted = [re.sub(r"\s+", " ", line) for line in _QUOTED.findall(text)]
    assert [(line, fault) for line in quoted for fault in faults(line)] == []


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert faults("cmfl audit --no-such-option") != []
    assert faults("cmfl rounds dance") != []
    assert faults("make coffee") != []
    assert faults("python -m no_such_module") != []
    assert faults("no-such-program") != []
    assert faults("cmfl rounds list --home h | head") == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with one finished run, as getting started leaves it."""
    home = tmp_path_factory.mktemp("finished") / "first"
    assert cmfl("run", "--preset", "smoke", "--home", home).code == 0
    return home


@contextmanager
def witnessed(home: Path) -> Iterator[str]:
    """Publish the log of a home, with one witness at work; yield the log's key.

    Keystore, password and policy are in the folder of the home.
    """
    folder = home.parent
    (folder / "password").write_text(PASSWORD)
    write_keystore(folder / "log.json", bytes([3] * 32))
    signing = ("--keystore", folder / "log.json", "--password-file", folder / "password")
    named = ("--home", home, "--name", "example.org/cmfl", *signing)
    key = succeeds("log", "key", *named).out.strip()
    with witness_at(folder / "witness", WITNESSES[0], time.time, [parse_vkey(key)]) as url:
        policy = f"log {key}\nwitness A {WITNESSES[0].verifier} {url}\nquorum A\n"
        (folder / "policy.txt").write_text(policy)
        out = ("--out", folder / "log", "--witness-policy", folder / "policy.txt")
        succeeds("log", "publish", *named, *out)
        yield key


@pytest.fixture(scope="module")
def values(finished: Path) -> Iterator[dict[str, str]]:
    """Return the values of the pages' placeholders: the finished run, on a node and a service."""
    manifest = json.loads((finished / "runs" / "run" / "deployment.json").read_text("utf-8"))
    rows = (finished / "runs" / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    with (
        EmbeddedReader.open(finished / "chain.sqlite") as chain,
        RpcServer(chain) as node,
        serving(Settings(home=finished)) as service,
        witnessed(finished) as log_key,
    ):
        yield {
            "VKEY": log_key,
            "HOME": str(finished),
            "--rpc-url URL": f"--rpc-url {node.url}",
            "--chain-id N": f"--chain-id {chain.chain_id}",
            "--address 0x...": f"--address {manifest['address']}",
            "--head 0x...": f"--head {json.loads(rows[-1])['head']}",
            "--blobs PLACE": f"--blobs {finished / 'blobs'}",
            "--api API": f"--api {str(service.base_url).rstrip('/')}",
            "--round T": "--round 2",
            "--client I": "--client 3",
        }


def write_signing_key(folder: Path) -> None:
    """Write a key of signatures, as openssl does."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(private)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pub").write_bytes(public)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if executed(page)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_the_blocks_of_a_page_can_be_executed(
    page: Path,
    finished: Path,
    values: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not any(
        "--home first" in line and "cmfl run" in line for line in page.read_text().splitlines()
    ):
        shutil.copytree(finished, tmp_path / "first")
    for name in ("password", "log.json", "policy.txt"):
        shutil.copy(finished.parent / name, tmp_path / name)
    write_signing_key(tmp_path)
    (tmp_path / "entries").mkdir()
    smoke = (ROOT / "clients" / "presets" / "smoke.toml").read_text("utf-8")
    federation = smoke.replace("[protocol]\n", '[protocol]\nbeacon = "block"\n')
    (tmp_path / "fed.toml").write_text(federation)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    # A key of the usual cost takes a second to open; tests/containers makes and opens some.
    cheap = partial(keystores.write_keystore, work=keystores.ScryptCost.OF_TEST_KEYS)
    monkeypatch.setattr(keystores, "write_keystore", cheap)
    for language, shown in executed(page):
        text = shown
        if language == "python":
            large, small = SMALLER.get(str(page.relative_to(ROOT)), ("", ""))
            assert large in text
            text = text.replace(large, small)
            file = tmp_path / "block.py"
            file.write_text(text)
            runpy.run_path(str(file), run_name="__main__")
            continue
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        for line in lines_of(text):
            words = shlex.split(line, comments=True)
            assert words[0] == "cmfl", f"only cmfl is run here: {line}"
            result = cmfl(*words[1:])
            assert result.code == 0, (line, result.err)
