"""A core installation: no extra is needed to read, to verify and to audit."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

import ledger
from tests.packaging.metadata import core, distributions, installed_with
from tests.patience import PATIENCE_SECONDS

SCRIPT = """
import importlib, json, sys
installed, distributions, modules = json.load(sys.stdin)

class Core:
    @staticmethod
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        if distributions.get(top) and not installed.intersection(distributions[top]):
            raise ModuleNotFoundError(f"{top} is in no core installation", name=name)

installed = set(installed)
sys.meta_path.insert(0, Core)
for module in modules:
    importlib.import_module(module)
"""


def modules() -> list[str]:
    walked = pkgutil.walk_packages(ledger.__path__, "ledger.")
    return [found.name for found in walked]


def test_every_module_of_the_ledger_is_imported_without_an_extra() -> None:
    assert len(modules()) > 100
    installed = installed_with(core()) | {"cmfl-ledger"}
    of_modules = {module: sorted(names) for module, names in distributions().items()}
    imported = ["contracts", "cmfl", "api.client", *modules()]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([sorted(installed), of_modules, imported]),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("preparation", "sentence"),
    [
        ("sys.modules['rich'] = None", "this needs the extra [cli]: pip install"),
        ("main.os.name = 'nt'", "Windows is not supported"),
    ],
)
def test_a_start_that_is_not_possible_is_refused(preparation: str, sentence: str) -> None:
    begin = f"import sys; from cmfl.commands import main; {preparation}; main.run()"
    ended = subprocess.run(
        [sys.executable, "-c", begin, "--help"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"cmfl: {sentence}")
    assert len(ended.stderr.splitlines()) == 1
