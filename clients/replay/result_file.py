"""Results of repeated training in a file, and their attestation.

A line is one result with all that it follows from: run, round, client, commitment, environment,
model code and samples. A result counts only for the same. The losses are in it: the file is its
auditor's own, like a key. Several processes may add to one file.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from clients.replay.replayed_update import (
    CONFIRMED,
    FALSE,
    NOT_COMPARABLE,
    ComparedAttestation,
    ReplayedUpdate,
    TrainingReplay,
    UpdateDifference,
)
from ledger.history.training import attestations_of_round
from ledger.io.home import read_file
from ledger.io.parsing import parse_json
from ledger.protocol.documents.envelope import Attestation, Envelope
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import Signer, sign
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment, replay_witness
from ledger.protocol.types import Digest
from ledger.storage.mailbox import Mailbox

_NO_SIGNATURE = bytes(65)


def own_attestations(result: TrainingReplay, run: Digest, signer: Signer) -> list[Envelope]:
    """Return signed attestations of all updates of a replay that are the same or other.

    Args:
        run: sha256 of the run document.
    """
    envelopes = []
    for update in result.updates:
        if not update.is_attestable:
            continue
        assert update.losses is not None
        attestation = Attestation(
            auditor=signer.address,
            run=run,
            verdict=update.verdict,
            environment=update.environment,
            witness=replay_witness(signer.address, update.losses),
            signature=_NO_SIGNATURE,
        )
        statement = attestation.statement(update.round, update.client)
        signed = replace(attestation, signature=sign(signer, result.domain, statement))
        envelopes.append(Envelope(result.domain, update.round, update.client, signed))
    return envelopes


def compared_attestations(
    result: TrainingReplay, run: Digest, mailbox: Mailbox
) -> list[ComparedAttestation]:
    """Return what the attestations of a mailbox about the repeated updates are worth.

    One is false if it names the environment of this repetition, and another verdict or losses that
    are not those of the recorded training in it.

    Args:
        run: sha256 of the run document.
    """
    updates = {(update.round, update.client): update for update in result.updates}
    compared = []
    for number in sorted({update.round for update in result.updates}):
        for client, attestation in attestations_of_round(mailbox, result.domain, run, number):
            update = updates.get((number, client))
            if update is not None:
                finding, reason = _compared(attestation, update)
                auditor = attestation.auditor
                compared.append(ComparedAttestation(number, client, auditor, finding, reason))
        mailbox.forget(result.domain, number + 1)
    return compared


def _compared(attestation: Attestation, update: ReplayedUpdate) -> tuple[str, str]:
    if attestation.environment != update.environment:
        return NOT_COMPARABLE, f"it is of another environment: {attestation.environment}"
    if update.verdict is ReplayVerdict.NOT_CHECKABLE or update.losses is None:
        return NOT_COMPARABLE, "the update could not be checked here"
    if attestation.verdict is not update.verdict:
        said, here = attestation.verdict.name.lower(), update.verdict.name.lower()
        return FALSE, f'it says "{said}", and the update is "{here}" in the same environment'
    if attestation.witness != replay_witness(attestation.auditor, update.losses):
        return FALSE, "its witness is not of the losses that the training has in this environment"
    return CONFIRMED, ""


MAX_RESULT_BYTES = 1 << 30


class ResultFile:
    """Results by the digest of what they follow from, appended one by one."""

    def __init__(self, path: Path) -> None:
        """Read a file, or begin one."""
        self._path = path
        self._results: dict[str, dict[str, Any]] = {}
        try:
            data = read_file(path, MAX_RESULT_BYTES) if path.exists() else b""
            path.parent.stat()  # before anything is trained
        except OSError as error:
            raise ConfigurationError(f"--log {path}: {error.strerror}") from error
        *lines, torn = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            self._read(number, line)
        self._whole = len(data) - len(torn)

    def find(self, origin: Digest, environment: TrainingEnvironment) -> ReplayedUpdate | None:
        """Return the result of the same update from the same inputs; None if there is none."""
        values = self._results.get(origin.hex())
        return None if values is None else _update(values, environment)

    def add(self, origin: Digest, update: ReplayedUpdate) -> None:
        """Append a result."""
        plain = replace(update, losses=None)
        values = asdict(plain) | {
            "origin": origin.hex(),
            "environment": None,
            "losses": None if update.losses is None else update.losses.hex(),
        }
        try:
            with open(self._path, "a+b", opener=_private) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                whole = file.seek(min(self._whole, file.seek(0, os.SEEK_END)))
                others = file.read(MAX_RESULT_BYTES)
                file.truncate(whole + others.rfind(b"\n") + 1)  # a line cut short is none
                file.write(f"{json.dumps(values, allow_nan=False)}\n".encode())
                file.flush()
                os.fsync(file.fileno())
                self._whole = file.tell()
        except OSError as error:
            raise ConfigurationError(f"--log {self._path}: {error.strerror}") from error

    def _read(self, number: int, line: bytes) -> None:
        try:
            values = parse_json(line)
            here = TrainingEnvironment("-", "-", "-", "-", "-", 1)
            _update(values, here)
            self._results[values["origin"]] = values
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"--log {self._path}: line {number} is no result of a replay: name a new file"
            ) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _update(values: dict[str, Any], environment: TrainingEnvironment) -> ReplayedUpdate:
    recorded, difference = values["recorded"], values["difference"]
    return ReplayedUpdate(
        round=values["round"],
        client=values["client"],
        verdict=ReplayVerdict(values["verdict"]),
        reason=values["reason"],
        environment=environment,
        recorded=None if recorded is None else TrainingEnvironment(**recorded),
        losses=None if values["losses"] is None else bytes.fromhex(values["losses"]),
        difference=None if difference is None else UpdateDifference(**difference),
    )
