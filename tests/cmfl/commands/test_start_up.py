"""What commands that only read a home import: nothing that executes, signs, trains or serves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.actors.journal import FileJournal
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from tests.actors.deployed import deployed_on
from tests.patience import PATIENCE_SECONDS

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hugging_face"
UNWANTED = ("torch", "sklearn", "numba", "fastapi", "web3", "safetensors")
ACCOUNTS = ("eth_tester", "eth_account", "eth_keyfile", "py_ecc")
HTTP_CLIENT = {"httpx", "httpcore"}
COMMANDS = (
    ("rounds", "list"),
    ("rounds", "show", "1"),
    ("rounds", "explain", "1"),
    ("clients", "list"),
    ("clients", "show", "3"),
)
DOCTOR = ("doctor",)
CLAIMS = ("runs", "list")
SCRIPT = """
import contextlib, importlib.util, io, json, sys
from cmfl.commands.application import main

class Torch:
    # Notes who asks for torch, and spares this process the seconds that it takes.
    asked = set()

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        self.asked.add(spec.name)
        raise ImportError(spec.name)

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Torch())
found = []
for command in json.load(sys.stdin):
    sys.argv = ["cmfl", *command]
    with contextlib.redirect_stdout(io.StringIO()):
        code = main()
    found.append([code, sorted({name for name in sys.modules if "." not in name} | Torch.asked)])
print(json.dumps(found))
"""


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """Return a home with one decided round, which needed no learning framework either."""
    home = Home(tmp_path / "home")
    folder = home.run("run").path
    folder.mkdir(parents=True)
    with EmbeddedChain.create(home.chain, synchronous="NORMAL") as chain:
        deployed = deployed_on(chain, folder)
        assert deployed.play() is not None
        assert isinstance(deployed.context.journal, FileJournal)
        deployed.context.journal.close()
    # Settings of the machine, which the manifest leaves out: it was made of none.
    home.run("run").configuration.write_text("[machine]\nworkers = 1\n")
    return home.path


def imported(commands: list[list[str]]) -> list[tuple[int, list[str]]]:
    """Return the exit code of each command, and all packages that are imported after it."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    found: list[tuple[int, list[str]]] = json.loads(ended.stdout)
    return found


def test_version_and_help_need_no_numpy() -> None:
    found = imported([["--version"], ["--help"]])
    assert [code for code, _ in found] == [0, 0]
    for _, names in found:
        assert not {*UNWANTED, *ACCOUNTS, "eth", "numpy", "pydantic"} & set(names)


def test_commands_that_read_import_neither_evm_nor_torch_nor_accounts(
    played: Path, tmp_path: Path
) -> None:
    reading = [[*command, "--home", str(played)] for command in (*COMMANDS, CLAIMS, DOCTOR)]
    elsewhere = ["rounds", "list", "--home", str(tmp_path / "nowhere")]
    far = ["rounds", "list", "--api", "http://127.0.0.1:9"]
    data = ["data", "check", str(FIXTURES / "sent140")]
    refused, described, *found, (_, at_last) = imported([elsewhere, data, *reading, far])
    assert (refused[0], described[0]) == (2, 0)
    for command, (code, names) in zip((*COMMANDS, CLAIMS, DOCTOR), found, strict=True):
        # A head is compared with the contract's state, which the EVM reads.
        executes = {"eth"} if command in {CLAIMS, DOCTOR} else set()
        unwanted = {*UNWANTED, *ACCOUNTS, *HTTP_CLIENT, "eth"} & set(names)
        assert unwanted == executes, command
        assert code == 0, command
    assert set(at_last) >= HTTP_CLIENT, "a service is asked over HTTP"


def test_only_a_deep_doctor_loads_torch(tmp_path: Path) -> None:
    home = ["--home", str(tmp_path / "none")]
    (code, names), (deep_code, deep_names) = imported(
        [["doctor", *home], ["doctor", "--deep", *home]]
    )
    assert (code, "torch" in names) == (0, False)
    # This torch cannot be imported, which is found where it is loaded.
    assert (deep_code, "torch" in deep_names) == (1, True)
