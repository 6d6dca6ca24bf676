"""Checks of the installation and the machine."""

from __future__ import annotations

import ctypes
import platform
import shutil
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cmfl.commands.checks.check import Check
from cmfl.commands.serve import is_port_taken
from ledger.protocol.errors import CmflError

USUAL_PORT = 8000
ENOUGH_BYTES = 100_000_000


def machine_checks(home: Path, asked_port: int | None) -> list[Check]:
    """Return the checks of installation and machine.

    Args:
        home: of the runs; it need not exist.
        asked_port: that must be free; None to say whether the usual one is.
    """
    return [
        ("python", platform.python_version),
        ("signatures", _signatures),
        ("contract artefact", _artefact),
        ("distances", _distances),
        ("torch", _torch),
        ("environment class", _environment),
        ("port", lambda: _port(asked_port)),
        ("disk", lambda: _disk(home)),
    ]


def _signatures() -> str:
    from ledger.protocol.encoding import keccak256
    from ledger.protocol.signing import KeySigner, recover

    signer = KeySigner(keccak256(b"PUBLIC TEST KEY of cmfl doctor"))
    digest = keccak256(b"a message")
    if recover(digest, signer.sign(digest)) != signer.address:
        raise CmflError("a signature does not recover to its signer: install coincurve again")
    return "secp256k1 signs and recovers"


def _artefact() -> str:
    """Compare the contract's sources with the compiled artefact."""
    from cmfl.commands.contract import differing_sources
    from ledger.chain.contract.abi import artifact

    for name in differing_sources(artifact()):
        raise CmflError(
            f"contracts/{name} is not what the artefact was compiled from: compile it again, or "
            f"put the source back"
        )
    return f"{artifact().compiler}, {len(artifact().runtime)} bytes, sources match"


def _distances() -> str:
    from ledger.distances.fast import fallback_reason

    reason = fallback_reason()
    slower = f"by NumPy, which is about five times slower: {reason}"
    return slower if reason else "compiled for this processor"


def _torch() -> str:
    installed = _torch_version()
    missing = "not installed: audit and serve work, run and deploy do not"
    return missing if installed is None else f"{installed}, {_gpu()}"


def _torch_version() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _environment() -> str:
    """Say in which class updates are trained here, and under which caps they can be."""
    if _torch_version() is None:
        return "none without torch: nothing is trained or repeated here"
    try:
        from clients.training.environment import environment_here
    except ImportError as error:
        raise CmflError(f"torch cannot be imported: {error!s:.300}") from error
    from clients.devices import available_caps

    here = replace(environment_here("plain", "cpu"), path="plain or lockstep")
    caps = ", ".join(available_caps()) or "left out alone: this processor has no choice"
    return f"{here}; machine.isa can be {caps}"


def _gpu() -> str:
    try:
        ctypes.CDLL("libcuda.so.1")  # the driver, without which torch finds no GPU either
    except OSError:
        return "no GPU"
    from clients.devices import cards_described

    return cards_described()


def _port(asked: int | None) -> str:
    port = USUAL_PORT if asked is None else asked
    if not is_port_taken(port):
        return f"{port} is free"
    sentence = f"{port} is taken: give cmfl serve another with --port"
    if asked is not None:
        raise CmflError(sentence)
    return sentence


def _disk(home: Path) -> str:
    folder = next(path for path in (home.absolute(), *home.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < ENOUGH_BYTES:
        raise CmflError(f"only {free // 1_000_000} MB are free at {folder}: make room")
    return f"{free / 1e9:.1f} GB free"
