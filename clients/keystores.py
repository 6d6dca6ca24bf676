"""Keystores of version 3, as wallets and nodes read them; the only form of a key on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from eth_account import Account

from ledger.io.home import DISK
from ledger.protocol.errors import ConfigurationError

PASSWORD_FILE = "password.txt"  # noqa: S105 - its name
PUBLIC_PASSWORD = "public"  # noqa: S105 - of public test keys


class ScryptCost(IntEnum):
    """Cost of scrypt: the time of one try of a password."""

    USUAL = 2**18
    """About a second, as wallets have it."""
    OF_TEST_KEYS = 2**12
    """Next to nothing: for keys that protect nothing."""


def write_keystore(
    path: Path, private_key: bytes, password: str, work: ScryptCost = ScryptCost.USUAL
) -> None:
    """Write a key's keystore, readable for its owner alone; no file is ever replaced."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ConfigurationError(
            f"--keystore {path}: there is a file already, and a key is never overwritten"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            # Not before the name is ours: encrypting takes a second.
            content = Account.encrypt(private_key, password, kdf="scrypt", iterations=int(work))
            file.write(json.dumps(content, indent=1) + "\n")
        # A key whose file a power cut takes back may have been sent money meanwhile.
        DISK.sync([path])
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_test_keystores(folder: Path, keys: Sequence[bytes]) -> list[Path]:
    """Write keystores of PUBLIC TEST KEYS and their password into a new or empty folder.

    Returns:
        The keystores, `client-000.json` and so on, in the order of the keys.
    """
    folder.mkdir(parents=True, exist_ok=True)
    existing = next(folder.iterdir(), None)
    if existing is not None:
        raise ConfigurationError(
            f"--folder {folder}: has {existing.name} in it; test keys go into a folder of their own"
        )
    (folder / PASSWORD_FILE).write_text(f"{PUBLIC_PASSWORD}\n", "utf-8")
    written = [folder / f"client-{index:03}.json" for index in range(len(keys))]
    for path, key in zip(written, keys, strict=True):
        write_keystore(path, key, PUBLIC_PASSWORD, ScryptCost.OF_TEST_KEYS)
    return written
