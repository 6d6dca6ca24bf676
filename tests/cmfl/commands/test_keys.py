"""`cmfl keys`: keystores that other tools read, and keys that appear nowhere."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest
from eth_account import Account

from clients import registration
from clients.datasets.own_samples import simulated_keys
from clients.registration import ScryptCost
from ledger.protocol import signing
from ledger.protocol.encoding import checksum
from ledger.protocol.signing import KeySigner
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

DOCS = Path(__file__).parents[3] / "docs"
PASSWORD = "not a word of any sentence"
USUAL = registration.write_keystore.__defaults__


@pytest.fixture
def password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a password file; deriving from it costs a test nothing."""
    monkeypatch.setattr(registration.write_keystore, "__defaults__", (ScryptCost.OF_TEST_KEYS,))
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    return path


def test_a_new_key_is_its_owners_alone_and_never_overwritten(
    tmp_path: Path, password: Path
) -> None:
    keystore = tmp_path / "me.json"
    arguments = ["keys", "new", "--keystore", keystore, "--password-file", password]
    found = succeeds(*arguments, "--json").json
    assert stat.S_IMODE(keystore.stat().st_mode) == 0o600
    # What the fixture takes back: guessing the password of a real keystore costs a second a try.
    assert USUAL == (ScryptCost.USUAL,)
    before = keystore.read_bytes()
    key = bytes(Account.decrypt(json.loads(before), PASSWORD))
    assert found == {"address": checksum(KeySigner(key).address), "keystore": str(keystore)}
    assert "a key is never overwritten" in refusal(*arguments)
    assert keystore.read_bytes() == before
    assert succeeds("keys", "show", "--keystore", keystore).out == (
        f"{found['address']} from {keystore}\n"
    )
    shown = ["keys", "show", "--keystore", keystore, "--prove", "--password-file", password]
    assert succeeds(*shown, "--json").json == found | {"is_proven": True}
    assert succeeds(*shown).out == f"{found['address']} from {keystore}: signature valid\n"
    other = succeeds("keys", "new", "--keystore", tmp_path / "other.json", *arguments[4:], "--json")
    assert other.json["address"] != found["address"]


def test_a_secret_that_others_may_read_causes_one_warning(tmp_path: Path, password: Path) -> None:
    keystore = tmp_path / "me.json"
    succeeds("keys", "new", "--keystore", keystore, "--password-file", password)
    shown = ["keys", "show", "--keystore", keystore, "--prove", "--password-file", password]
    for path, mode in ((password, 0o644), (keystore, 0o640)):
        path.chmod(mode)
        said, fact = cmfl(*shown), f"{path} has mode {mode:o}, so that other accounts may read it"
        assert (said.code, said.err) == (0, f"cmfl: {fact}: chmod 600 {path}\n")
        path.chmod(0o600)
        succeeds(*shown)


@pytest.mark.parametrize(
    "command",
    [
        ("keys", "new"),
        (
            "chain",
            "fund",
            "0x" + "11" * 20,
            "--amount",
            1,
            "--rpc-url",
            "http://x",
            "--chain-id",
            1,
        ),
    ],
)
def test_two_keystores_need_a_choice_where_one_key_signs(
    command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal(*command, "--keystore", "one.json", "--keystore", "other.json")
    assert said == "--keystore is given 2 times (one.json, other.json); give one key"
    assert not [*tmp_path.iterdir()]


def test_a_key_without_a_password_is_not_made(tmp_path: Path) -> None:
    keystore, empty = tmp_path / "me.json", tmp_path / "empty"
    empty.write_text("\n")
    arguments = ["keys", "new", "--keystore", keystore, "--password-file"]
    assert "the password is empty" in refusal(*arguments, empty)
    assert "cannot be read" in refusal(*arguments, tmp_path / "none")
    assert not keystore.exists()


def test_a_keystore_that_names_another_account_is_found_out(tmp_path: Path, password: Path) -> None:
    keystore = tmp_path / "me.json"
    succeeds("keys", "new", "--keystore", keystore, "--password-file", password)
    content = json.loads(keystore.read_text()) | {"address": "11" * 20}
    keystore.write_text(json.dumps(content))
    shown = ["keys", "show", "--keystore", keystore]
    said = refusal(*shown, "--prove", "--password-file", password)
    assert re.search(r"names account 0x1{40}, and holds the key of 0x\w{40}", said)
    assert "no effect without --prove" in refusal(*shown, "--password-file", password)
    del content["address"]
    keystore.write_text(json.dumps(content))
    assert "does not name its account; use --prove to find it" in refusal(*shown)
    succeeds(*shown, "--prove", "--password-file", password)
    keystore.write_text("[]")
    assert "is not a keystore" in refusal(*shown)


def test_no_key_and_no_password_is_ever_printed(
    tmp_path: Path, password: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = simulated_keys(0, 1)[0]
    keystore, wrong = tmp_path / "me.json", tmp_path / "wrong"
    registration.write_keystore(keystore, key, PASSWORD)
    wrong.write_text("quite another secret")
    monkeypatch.setenv("CMFL_PRIVATE_KEY", key.hex())
    at = ["--keystore", keystore, "--password-file"]
    out = tmp_path / "entry.json"
    register = ["register", "--samples", 5, "--out", out, "--preset", "smoke"]
    node = ["join", "--rpc-url", "http://u:secretword@127.0.0.1:9", "--chain-id", 1]
    place = ["--blobs", tmp_path, "--contract", "0x" + "11" * 20, "--folder", tmp_path / "w"]
    printed = ""
    for command in (
        ["keys", "new", *at, password],
        ["keys", "show", "--prove", *at, password],
        ["keys", "show", "--prove", *at, wrong],
        [*register, *at, wrong],
        [*register, *at, password],
        [*node, *place, *at, wrong],
        [*node, *place, *at, password, "--json"],
        [*node, *place, "--json"],
        ["-v", *node, *place],
    ):
        result = cmfl(*command)
        printed += result.out + result.err
    printed += out.read_text()
    for secret in (key.hex(), str(int.from_bytes(key)), PASSWORD, "another secret", "secretword"):
        assert secret.lower() not in printed.lower()


def test_everything_that_a_key_signs_is_listed_in_the_docs() -> None:
    page = (DOCS / "how-to" / "join-a-run.md").read_text("utf-8")
    for name, fields in (*signing.REGISTRATION_TYPES.items(), *signing.TYPES.items()):
        assert name == "EIP712Domain" or f"| `{name}` | `{fields}` | " in page
