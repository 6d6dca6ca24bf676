"""`cmfl data digest`: what an owner registers, printed again, and to nobody without its secret."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from eth_account import Account

from ledger.protocol.encoding import checksum
from ledger.protocol.signing import data_salt
from tests.clients.onboarding.owners import FORM, owner, owner_key, samples_file
from tests.cmfl.commands.conftest import refusal, settings_of, succeeds

SETTINGS = ["--preset", "smoke", *settings_of("protocol.beacon=block", *FORM)]


@dataclass(frozen=True)
class Files:
    """An owner's files: `me.json` and `other.json` with their password, and `mine.npz`."""

    folder: Path

    @property
    def samples(self) -> Path:
        return self.folder / "mine.npz"

    def key(self, name: str) -> list[object]:
        return ["--keystore", self.folder / name, "--password-file", self.folder / "password"]

    def digest(self, *words: object) -> list[object]:
        return ["data", "digest", self.samples, *SETTINGS, *words]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("owner")
    (folder / "password").write_text("not a word of any sentence")
    for name, number in (("me.json", 0), ("other.json", 1)):
        key = Account.encrypt(
            owner_key(number), "not a word of any sentence", kdf="pbkdf2", iterations=2
        )
        (folder / name).write_text(json.dumps(key))
    samples_file(folder / "mine.npz", 12)
    return Files(folder)


def test_the_digest_is_the_one_that_was_registered(files: Files, tmp_path: Path) -> None:
    entry = tmp_path / "entry.json"
    register = ["register", *files.key("me.json"), "--data", files.samples, "--out", entry]
    registered = succeeds(*register, *SETTINGS, "--json").json
    shown = succeeds(*files.digest(*files.key("me.json"), "--json")).json
    assert shown == {name: registered[name] for name in ("client", "samples", "data")}
    assert json.loads(entry.read_text())["data"] == shown["data"]
    assert shown["client"] == checksum(owner(0).address)
    assert shown["samples"] == 12
    assert succeeds(*files.digest(*files.key("me.json"))).out == f"{shown['data']}\n"


def test_the_salt_does_instead_of_the_key(files: Files) -> None:
    salt = f"0x{data_salt(owner(0)).hex()}"
    by_key = succeeds(*files.digest(*files.key("me.json"), "--json")).json
    assert succeeds(*files.digest("--salt", salt, "--json")).json == by_key | {"client": None}


def test_another_key_or_other_samples_give_another_digest(files: Files, tmp_path: Path) -> None:
    mine = succeeds(*files.digest(*files.key("me.json"))).out
    assert succeeds(*files.digest(*files.key("other.json"))).out != mine
    other = samples_file(tmp_path / "other.npz", 12, seed=5)
    assert succeeds("data", "digest", other, *SETTINGS, *files.key("me.json")).out != mine


def test_without_exactly_one_secret_nothing_is_printed(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", owner_key(0).hex())
    salt = ["--salt", "0x" + "11" * 32]
    assert "needs exactly one of --keystore" in refusal(*files.digest())
    assert "needs exactly one of --keystore" in refusal(*files.digest(*salt, *files.key("me.json")))
    password = ["--password-file", files.folder / "password"]
    assert "--password-file has no effect" in refusal(*files.digest(*salt, *password))
    assert "--salt: must be 64 hex digits" in refusal(*files.digest("--salt", "0x1122"))
