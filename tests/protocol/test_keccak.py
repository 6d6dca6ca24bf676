"""Keccak-256: one object for all libraries, through pysha3 unless somebody names another."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from eth_hash.backends.auto import AutoBackend
from eth_hash.main import Keccak256

from ledger.protocol.errors import ConfigurationError
from ledger.protocol.keccak import keccak, prefer_pysha3

EMPTY = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
SCRIPT = """
import sys
if sys.argv[1] == "missing":
    sys.modules["sha3"] = None
from ledger.protocol.keccak import keccak
print(keccak.hasher.__module__, keccak(b"").hex(), keccak.new(b"").digest().hex())
"""


def ended(how: str, named: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        env={**os.environ, "ETH_HASH_BACKEND": named},
        capture_output=True,
        text=True,
        check=False,
    )


def backend_of(how: str, named: str = "") -> list[str]:
    process = ended(how, named)
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(135), bytes(136), bytes(137)])
def test_hashes_as_the_other_backend_does(data: bytes) -> None:
    from eth_hash.backends.pycryptodome import backend

    assert keccak(data) == backend.keccak256(data)


def test_takes_pysha3_where_it_is_there() -> None:
    assert backend_of("there") == ["eth_hash.backends.pysha3", EMPTY, EMPTY]


@pytest.mark.parametrize(("how", "named"), [("there", "nonsense"), ("missing", "pysha3")])
def test_an_unavailable_named_backend_is_a_configuration_error(how: str, named: str) -> None:
    last = ended(how, named).stderr.splitlines()[-1]
    assert last.startswith("ledger.protocol.errors.ConfigurationError")
    assert f"ETH_HASH_BACKEND, '{named}'" in last


def test_a_named_backend_is_loaded_at_once_and_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETH_HASH_BACKEND", "pycryptodome")
    named = Keccak256(AutoBackend())
    prefer_pysha3(named)
    assert named.hasher.__module__ != "eth_hash.backends.pysha3"
    monkeypatch.setenv("ETH_HASH_BACKEND", "nonsense")
    with pytest.raises(ConfigurationError, match="nonsense"):
        prefer_pysha3(Keccak256(AutoBackend()))


def test_a_hash_stays_as_it_is_where_pysha3_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETH_HASH_BACKEND", "")
    monkeypatch.setitem(sys.modules, "eth_hash.backends.pysha3", None)
    plain = Keccak256(AutoBackend())
    before = plain.hasher
    prefer_pysha3(plain)
    assert plain.hasher == before
