"""What `cmfl serve` is told reaches the service, from the line or the environment; secrets stay."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from api import app
from api.settings import Settings
from tests.cmfl.commands.conftest import refusal, succeeds

TOKEN = "a-token-that-this-test-has-made-up"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    found: list[Settings] = []
    monkeypatch.setattr(app, "serve", lambda settings, *_: found.append(settings))
    return found


def test_options_and_variables_are_one(
    served: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokens").write_text(f"\n{TOKEN}\n  another-token-of-this-test \n")
    options = {
        "--tokens-file": tmp_path / "tokens",
        "--origin": "https://audit.example",
        "--allowed-host": "ledger.example",
        "--root-path": "/ledger",
        "--requests-per-minute": 90,
        "--trusted-proxy": "192.0.2.0/24",
        "--mailbox": tmp_path / "mailbox",
        "--verification-memory": 512,
        "--verification-seconds": 60,
        "--rules": tmp_path / "rule.py",
    }
    (tmp_path / "rule.py").touch()
    flags = ("--open-reading", "--log-requests", "--no-verifications")
    given = [part for option in options.items() for part in option]
    succeeds("serve", "--home", tmp_path, *given, *flags)
    names = {
        "--origin": "CMFL_API_ORIGINS",
        "--trusted-proxy": "CMFL_API_TRUSTED_PROXIES",
        "--allowed-host": "CMFL_API_ALLOWED_HOSTS",
    }
    for option, value in options.items():
        name = names.get(option, f"CMFL_API_{option[2:].replace('-', '_').upper()}")
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("CMFL_API_OPEN_READING", "1")
    monkeypatch.setenv("CMFL_API_LOG_REQUESTS", "1")
    monkeypatch.setenv("CMFL_API_VERIFICATIONS", "0")
    succeeds("serve", "--home", tmp_path)
    first, second = served
    assert first == second
    assert first.tokens == (TOKEN, "another-token-of-this-test")
    assert first.trusted_proxies == (ip_network("192.0.2.0/24"),)
    assert first.mailbox == str(tmp_path / "mailbox")
    assert first.rules == (str(tmp_path / "rule.py"),)
    assert (first.allowed_hosts, first.root_path) == (("ledger.example",), "/ledger")
    assert first.reading_is_open
    assert first.logs_requests
    assert not first.verifications
    assert (first.verification_memory_bytes, first.verification_seconds) == (2**29, 60)


def test_what_is_no_place_for_mail_is_refused(tmp_path: Path) -> None:
    told = refusal("serve", "--home", tmp_path, "--mailbox", "a,,b")
    assert "--mailbox: give 1 to 8 folders or URLs" in told


def test_a_rule_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    gone = refusal("serve", "--home", tmp_path, "--rules", tmp_path / "gone.py")
    assert "gone.py cannot be read" in gone
    assert "is not in an installed package" in refusal("serve", "--rules", "no_such_package")


def test_a_token_that_is_none_is_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for text, said in (
        (f"{TOKEN}\nshort", "line 2"),
        ("a\ttoken-with-a-tab-inside", "line 1"),
        ("\n", "no token"),
    ):
        path.write_text(text)
        told = refusal("serve", "--home", tmp_path, "--tokens-file", path)
        assert said in told
        assert not any(part in told for part in text.split() if len(part) > 4)
    assert "cannot be read" in refusal("serve", "--tokens-file", tmp_path / "none")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--origin", "*"),
        ("--trusted-proxy", "*"),
        ("--allowed-host", "*"),
        ("--root-path", "ledger"),
        ("--requests-per-minute", "0"),
        ("--open-reading", ""),
    ],
)
def test_what_would_open_the_door_is_refused_by_its_name(
    tmp_path: Path, option: str, value: str
) -> None:
    assert option in refusal("serve", "--home", tmp_path, *filter(None, (option, value)))
