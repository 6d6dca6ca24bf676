"""Code blocks of README and docs: `sh` and `python` run in order, and every command named exists.

The blocks of a page are executed in a folder with a finished run in `first`, a `password`, a key
to sign with, and a federation's settings in `fed.toml`. The commands of `console` blocks, and those
quoted in the text and in the systemd units, must exist, with their options and make targets.
"""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import typer

from api.settings import Settings
from clients import registration
from cmfl.commands.application import application
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.transparency.notes import parse_vkey
from tests.api.conftest import serving
from tests.cmfl.commands.conftest import cmfl, succeeds
from tests.support.keys import write_keystore
from tests.transparency.serving import witness_at
from tests.transparency.support import WITNESSES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
UNITS = sorted((ROOT / "docs" / "systemd").glob("*.service"))
PASSWORD = "correct horse battery staple"
LANGUAGES = {"sh", "python", "console", "text", "toml", "nginx", "mermaid", "json"}
FOREIGN = {
    *("flower-superlink", "flower-supernode", "flwr", "anvil", "geth", "besu", "ray", "python3"),
    *("source", "twine", "git", "openssl", "model_signing", "pip", "npm"),
}
SMALLER = {
    "README.md": {
        "seed=7, rounds=10)": "seed=7, rounds=7)",
        "seeds=range(2),\n    rounds=10,\n)": "seeds=range(1),\n    rounds=1,\n)",
        "--preset digits --rounds 10 ": "--preset digits --rounds 7 ",
    },
}
"""Shown large, run small."""
_BLOCK = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`(cmfl [a-z][^`]*)`")


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(language, text) for _, language, text in _BLOCK.findall(page.read_text("utf-8"))]


def lines_of(text: str) -> list[str]:
    """Return the commands of a block, with continued lines joined and without comments."""
    joined = text.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"]


@cache
def root_command() -> Any:
    return typer.main.get_command(application())


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def faults(line: str) -> list[str]:
    """Return what a command line names that does not exist."""
    words = shlex.split(re.sub(r"^[A-Z_]+=\S* ", "", line), comments=True)
    program, arguments = Path(words[0]).name, words[1:]
    if program == "cmfl":
        return faults_of_cmfl(arguments)
    if program == "make":
        return [word for word in arguments if word not in targets() and "=" not in word]
    if program == "python" and arguments[0] == "-m":
        return [] if importlib.util.find_spec(arguments[1]) else [arguments[1]]
    if program == "python":
        return [] if (ROOT / arguments[0]).exists() else [arguments[0]]
    return [] if program in FOREIGN else [program]


def faults_of_cmfl(arguments: list[str]) -> list[str]:
    command, path, options = root_command(), ["cmfl"], {"--help"}
    missing = []
    for word in [*arguments, ";"]:
        options |= {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        children: dict[str, Any] = getattr(command, "commands", {})
        if word in {"|", ">", "&&", ";"}:
            break
        if word.startswith("-") and word not in {"-", "--"}:
            missing += [] if word.partition("=")[0] in options else [f"{' '.join(path)} {word}"]
        elif children and len(path) < 3:
            names = [name for name in word.split("|") if name not in children and name != "..."]
            if names or word == "..." or "|" in word:
                return missing + names
            command = children[word]
            path.append(word)
    return missing


def named_commands(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    if page.suffix == ".service":
        return re.findall(r"^ExecStart=(.*)$", text.replace("\\\n", " "), re.MULTILINE)
    shown = [text for language, text in blocks(page) if language == "console"]
    quoted = [re.sub(r"\s+", " ", line) for line in _QUOTED.findall(_BLOCK.sub("", text))]
    return [line for block in shown for line in lines_of(block)] + quoted


def test_every_block_has_a_known_language() -> None:
    named = [(page.name, language) for page in PAGES for language, _ in blocks(page)]
    assert [found for found in named if found[1] not in LANGUAGES] == []


def test_every_command_that_a_page_or_a_unit_names_exists() -> None:
    named = [(page.name, line) for page in (*PAGES, *UNITS) for line in named_commands(page)]
    assert [(*found, fault) for found in named for fault in faults(found[1])] == []


@pytest.mark.parametrize(
    "line",
    [
        "cmfl audit --no-such-option",
        "cmfl rounds dance",
        "make coffee",
        "python -m no_such_module",
        "no-such-program",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    assert faults(line) != []
    assert faults("cmfl rounds list --home h | head") == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_no_unit_holds_a_secret_or_gets_new_rights(unit: Path) -> None:
    text = unit.read_text("utf-8")
    assert "--password-file" not in text or "--password-file ${CREDENTIALS_DIRECTORY}" in text
    assert not re.search(r"[0-9a-f]{64}|://[^ ]*@|^User=root$", text, re.MULTILINE)
    assert all(f"\n{setting}" in text for setting in ("User=", "NoNewPrivileges=yes\n"))
    # A worker with pending repairs is not restarted.
    assert "worker" not in unit.stem or "\nRestartPreventExitStatus=2\n" in text


@contextmanager
def witnessed(home: Path) -> Iterator[str]:
    """Publish the log of a home, with one witness; keystore and policy are beside the home."""
    folder = home.parent
    (folder / "password").write_text(PASSWORD)
    write_keystore(folder / "log.json", bytes([3] * 32))
    for secret in ("password", "log.json"):
        (folder / secret).chmod(0o600)
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
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the values of the pages' placeholders: a finished run, on a node and a service."""
    finished = tmp_path_factory.mktemp("finished") / "first"
    succeeds("run", "--preset", "smoke", "--home", finished)
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


def fill(folder: Path, finished: Path) -> None:
    """Put into a folder what the pages take for granted."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    for name in ("password", "log.json", "policy.txt"):
        shutil.copy(finished.parent / name, folder / name)
    key = ec.generate_private_key(ec.SECP256R1())
    private = (form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*private))
    public = (form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pub").write_bytes(key.public_key().public_bytes(*public))
    (folder / "entries").mkdir()
    smoke = (ROOT / "clients" / "presets" / "smoke.toml").read_text("utf-8")
    federation = smoke.replace("[protocol]\n", '[protocol]\nbeacon = "block"\n')
    (folder / "fed.toml").write_text(federation)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(language in {"sh", "python"} for language, _ in blocks(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_blocks_of_a_page_can_be_executed(
    page: Path, values: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = Path(values["HOME"])
    if not re.search(r"^.*cmfl run.*--home first", page.read_text("utf-8"), re.MULTILINE):
        shutil.copytree(finished, tmp_path / "first")
    fill(tmp_path, finished)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    # A key of the usual cost takes a second to open; tests/containers makes and opens some.
    cheap = partial(registration.write_keystore, work=registration.ScryptCost.OF_TEST_KEYS)
    monkeypatch.setattr(registration, "write_keystore", cheap)
    smaller = SMALLER.get(str(page.relative_to(ROOT)), {})
    assert all(large in page.read_text("utf-8") for large in smaller)
    for language, text in blocks(page):
        shown = text
        for large, small in smaller.items():
            shown = shown.replace(large, small)
        if language == "python":
            (tmp_path / "block.py").write_text(shown)
            runpy.run_path(str(tmp_path / "block.py"), run_name="__main__")
        for line in lines_of(shown) if language == "sh" else ():
            filled = line
            for placeholder, value in values.items():
                filled = filled.replace(placeholder, value)
            words = shlex.split(filled, comments=True)
            assert words[0] == "cmfl", f"only cmfl is run here: {line}"
            result = cmfl(*words[1:])
            assert result.code == 0, (line, result.err)
