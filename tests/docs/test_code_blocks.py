"""Code blocks of README and docs: `sh` and `python` run in order, and every command named exists.

The blocks of a page are executed in a folder with a finished run in `first`, a `password`, a key
to sign with, and a federation's settings in `fed.toml`. A block with a file name (```toml fed.toml)
is only written there. A line that ends with `&` is a server, which runs until the page ends. One
that ends with `; echo $?` may fail. In README and tutorials, a `text` block directly behind an
executed block is its output: `...` matches any text of its line, and a line `...` any lines.

The commands of `console` blocks, and those quoted in the text and in the systemd units, must exist,
with their options and make targets. They are not executed: `pip install`, `make`, long servers.
"""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import shlex
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import astuple
from functools import cache, partial
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import typer

from api.settings import Settings
from clients import registration
from clients.testnet.network import free_port
from cmfl.commands.application import application
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.transparency.notes import parse_vkey
from tests.api.conftest import serving
from tests.cmfl.commands.conftest import cmfl, succeeds
from tests.containers.composed import printed_by
from tests.patience import wait_until
from tests.processes import Forked, Forks
from tests.support.keys import write_keystore
from tests.transparency.serving import witness_at
from tests.transparency.support import WITNESSES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CHECKED = {ROOT / "README.md", *(ROOT / "docs" / "tutorials").glob("*.md")}
UNITS = sorted((ROOT / "docs" / "systemd").glob("*.service"))
PASSWORD = "correct horse battery staple"
LANGUAGES = {"sh", "python", "console", "text", "toml", "nginx", "mermaid", "json"}
FOREIGN = {
    *("flower-superlink", "flower-supernode", "flwr", "anvil", "geth", "besu", "ray", "python3"),
    *("source", "twine", "git", "openssl", "model_signing", "pip", "npm"),
    *("cd", "echo", "export", "mkdir", "umask"),
}
SMALLER = {
    "rounds=10, seed=7)": "rounds=7, seed=7)",
    "seeds=range(2),\n    rounds=10,\n)": "seeds=range(1),\n    rounds=1,\n)",
}
"""Shown large in the README, run small."""
_BLOCK = re.compile(r"^( *)```(\S*) *([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`(cmfl [a-z][^`]*)`")
_ANY = re.compile(r" ?\.{3} ?")
_PORT = re.compile(r"(?<=[: ])(8545|8600|8000)\b")


def blocks(page: Path, is_small: bool = False) -> Iterator[tuple[str, str, str, str | None]]:
    """Yield language, name, text and output of each block; None if it shows no output."""
    whole = page.read_text("utf-8")
    for large, small in SMALLER.items() if is_small and page.name == "README.md" else ():
        assert large in whole
        whole = whole.replace(large, small)
    found = [*_BLOCK.finditer(whole)]
    for block, after in zip_longest(found, found[1:]):
        is_shown = after and after[2] == "text" and whole[block.end() : after.start()].isspace()
        output = textwrap.dedent(after[4]) if is_shown else None
        yield block[2], block[3], textwrap.dedent(block[4]), output


def matches(shown: str, printed: str) -> bool:
    """Whether a page's text shows an output; `...` is any text or lines, spaces count as one."""
    shown, printed = (re.sub(r" +(?=[ \n])", "", text) for text in (shown, printed))
    lines = [
        r"(?:.*\n)*" if line == "..." else ".*".join(map(re.escape, _ANY.split(line))) + "\n"
        for line in shown.splitlines()
    ]
    return re.fullmatch("".join(lines), printed) is not None


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
    shown = [text for language, _, text, _ in blocks(page) if language == "console"]
    quoted = [re.sub(r"\s+", " ", line) for line in _QUOTED.findall(_BLOCK.sub("", text))]
    return [line for block in shown for line in lines_of(block)] + quoted


def test_every_block_has_a_known_language() -> None:
    named = [(page.name, language) for page in PAGES for language, *_ in blocks(page)]
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


class Reader:
    """Executes blocks as a reader in one folder does, with free ports in the place of a page's."""

    def __init__(self, values: dict[str, str], forks: Callable[[], Forks], ends: ExitStack) -> None:
        self._values, self._forks, self._ends = values, forks, ends
        self._ports = {port: str(free_port()) for port in ("8545", "8600", "8000")}

    def here(self, text: str) -> str:
        return _PORT.sub(lambda port: self._ports[port[0]], text)

    def execute(self, language: str, text: str) -> list[str | Forked]:
        """Return what the parts of a block have printed, or the servers that print it."""
        if language == "python":
            Path("block.py").write_text(text)
            with redirect_stdout(StringIO()) as printed:
                runpy.run_path(str(Path("block.py").resolve()), run_name="__main__")
            return [printed.getvalue()]
        return [self._run(line) for line in lines_of(text)] if language == "sh" else []

    def _run(self, line: str) -> str | Forked:
        for placeholder, value in (self._values | made_here()).items():
            line = line.replace(placeholder, value)
        command = line.removesuffix("; echo $?")
        words = shlex.split(self.here(command), comments=True)
        assert words[0] == "cmfl", f"only cmfl is run here: {line}"
        if words[-1] == "&":
            return self._ends.enter_context(self._forks().start(*words[1:-1]))
        code, out, err = astuple(cmfl(*words[1:]))
        assert command != line or code == 0, f"{line}\n{out}{err}"
        return f"{out}{err}{code}\n" if command != line else out + err


def made_here() -> dict[str, str]:
    """Return what a page has made: $KEY, the address of key.json; $CONTRACT and $CHAIN_ID."""
    made = {}
    documents = ("*[a-z][12].json", "federation/runs/*/deployment.json")
    for path in (path for pattern in documents for path in Path().glob(pattern)):
        document = json.loads(path.read_text("utf-8"))
        name = path.stem.upper().replace("DEPLOYMENT", "CONTRACT")
        made[f"${name}"] = document["address"]
        made["$CHAIN_ID"] = str(document.get("chain_id"))
    return made


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if {"sh", "python"} & {language for language, *_ in blocks(page)}],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_blocks_of_a_page_can_be_executed(
    page: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    finished, tmp_path = Path(values["HOME"]), request.getfixturevalue("tmp_path")
    if not re.search(r"^.*cmfl run.*--home first", page.read_text("utf-8"), re.MULTILINE):
        shutil.copytree(finished, tmp_path / "first")
    fill(tmp_path, finished)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    # A key of the usual cost takes a second to open; tests/containers makes and opens some.
    cheap = partial(registration.write_keystore, work=registration.ScryptCost.OF_TEST_KEYS)
    monkeypatch.setattr(registration, "write_keystore", cheap)
    with ExitStack() as ends:
        reader = Reader(values, partial(request.getfixturevalue, "forks"), ends)
        for language, name, text, output in blocks(page, is_small=True):
            if "." in name:
                Path(name).write_text(text)
            elif (printed := reader.execute(language, text)) and output and page in CHECKED:
                require_shown(reader.here(output), printed)
    # The pages after a tutorial name no run of its home.
    assert [run.name for run in Path("first", "runs").iterdir()] == ["run"]


def require_shown(shown: str, parts: list[str | Forked]) -> None:
    """Fail unless a page shows what its commands print; servers may print it later."""

    def printed() -> str:
        return "".join(part if isinstance(part, str) else printed_by(part) for part in parts)

    if not all(isinstance(part, str) for part in parts):
        wait_until(lambda: matches(shown, printed()), printed)
    assert matches(shown, printed()), f"the page shows:\n{shown}\nprinted was:\n{printed()}"


@pytest.mark.parametrize(
    ("shown", "is_shown"),
    [
        ("round 1: 3 accepted\nPASSED\n", True),
        ("...\nPASSED...\n", True),
        ("round 1: 4 accepted\nPASSED\n", False),
        ("round 1: 3 accepted\n", False),
    ],
)
def test_a_changed_output_is_noticed(shown: str, *, is_shown: bool) -> None:
    assert matches(shown, "round 1: 3 accepted  \nPASSED\n") == is_shown
