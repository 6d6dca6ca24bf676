"""Homes and documents of protocol version 2: one sentence, exit 2, and nothing is written.

`tests/fixtures/version_2.tar.xz` was made by the last program of version 2 with
`cmfl run --preset smoke --rounds 1`, `cmfl audit --report`, and `cmfl export` of a proof, a bundle
(without its blobs) and an attestation. The home has no updates.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from api.settings import Settings
from clients.configuration.loading import load_recorded
from cmfl.commands import WRONG
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import PROTOCOL_VERSION
from tests.api.conftest import deployments, serving
from tests.cmfl.commands.conftest import Result, cmfl
from tests.cmfl.commands.test_received_homes import commands

ARCHIVE = Path(__file__).parents[2] / "fixtures" / "version_2.tar.xz"
SENTENCE = f"protocol version 2; this program needs version {PROTOCOL_VERSION}"

pytestmark = pytest.mark.skipif(PROTOCOL_VERSION == 2, reason="this program has version 2")


class Old:
    def __init__(self, folder: Path) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        self.folder, self.home = folder, folder / "home"

    def state(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def old(tmp_path: Path) -> Old:
    return Old(tmp_path / "old")


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("current") / "home"
    assert cmfl("run", "--preset", "smoke", "--rounds", 1, "--home", home).code == 0
    return home


OPENS_NO_RUN = {
    "verify attestation": "reads the statement first; see test_a_document_of_version_2_is_refused",
    "blobs list": "has no --home",
    "log compare": "reads the log first, which is not there",
}
"""Commands that end before they open the home's runs, and why."""


def refuses(result: Result) -> bool:
    is_one = len(result.err.strip().splitlines()) == 1
    return result.code == WRONG and result.out == "" and is_one and SENTENCE in result.err


def test_every_command_refuses_an_old_home_and_writes_nothing(old: Old, tmp_path: Path) -> None:
    before, out, wrong = old.state(), tmp_path / "out", []
    out.mkdir()
    of_home = ("--home", old.home)
    played = {
        **commands(old, "run", out),
        "runs list": of_home,
        "deploy": (*of_home, "--run", "new", "--preset", "smoke"),
        "serve": of_home,
        "chain serve": of_home,
    }
    for name, arguments in played.items():
        result = cmfl(*name.split(), *arguments)
        if not (refuses(result) or name in OPENS_NO_RUN) or [*out.iterdir()]:
            wrong.append((name, result, [*out.iterdir()]))
    assert wrong == []
    assert old.state() == before


def test_a_service_lists_a_manifest_of_version_2_as_rejected(old: Old) -> None:
    with serving(Settings(home=old.home)) as http:
        assert deployments(http) == []
        answer = http.get("/v1/status").text
    assert SENTENCE in answer


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "bundle", "bundle.tar"),
        ("verify", "client", "--proof", "proof.json", "--round", 1, "--client", 0),
        ("verify", "attestation", "statement.json"),
        ("audit", "--since", "report.json"),
    ],
)
def test_a_document_of_version_2_is_refused(
    old: Old, current: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]
) -> None:
    monkeypatch.chdir(old.folder)
    before = old.state()
    result = cmfl(*arguments, "--home", current)
    assert refuses(result), result
    assert old.state() == before


def test_settings_of_version_2_are_refused(old: Old) -> None:
    with pytest.raises(ConfigurationError, match="removed in protocol 3"):
        load_recorded(Home(old.home).run("run").configuration)
