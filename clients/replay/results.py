"""Results of repeated training: a verdict for each update, their report, file and attestations."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.history.training import attestations_of_round
from ledger.io.home import naming, read_file
from ledger.io.parsing import parse_json
from ledger.protocol.documents.envelope import Attestation, Envelope
from ledger.protocol.encoding import to_hex
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import Signer, sign
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment, replay_witness
from ledger.protocol.types import Address, ClientId, Digest, Domain
from ledger.storage.mailbox import Mailbox

VERDICT_NAMES = {
    ReplayVerdict.SAME: "same",
    ReplayVerdict.OTHER: "other",
    ReplayVerdict.NOT_CHECKABLE: "not checkable",
}

_MOST_ATTESTATIONS = 20  # others' false attestations that are named: keys cost nothing
CONFIRMED = "confirmed"
FALSE = "false"
NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class UpdateDifference:
    """Distance of a repeated update from the recorded one.

    It is relative to the recorded length, and in units of the median distance of the round's honest
    updates from their mean; None for a division by zero.
    """

    relative: float | None
    spread: float | None

    @classmethod
    def between(
        cls,
        repeated: NDArray[np.float32],
        recorded: NDArray[np.float32],
        honest: Sequence[NDArray[np.float32]],
    ) -> UpdateDifference:
        distance = _norm(repeated, recorded)
        length = _norm(recorded, np.zeros(1, np.float32))
        finite, spread = [update for update in honest if np.isfinite(update).all()], 0.0
        if len(finite) > 1:
            mean: NDArray[np.float64] = np.mean(finite, axis=0, dtype=np.float64)
            spread = float(np.median([_norm(update, mean) for update in finite]))
        return cls(distance / length if length else None, distance / spread if spread else None)

    def __str__(self) -> str:
        parts = []
        if self.relative is not None:
            parts.append(f"{self.relative:.2g} of the recorded update's length")
        if self.spread is not None:
            parts.append(f"{self.spread:.2g} times the spread of honest updates")
        return ", ".join(parts) or "not in proportion to anything"


@dataclass(frozen=True, slots=True)
class ReplayedUpdate:
    """Result of repeating one update."""

    round: int
    client: ClientId
    verdict: ReplayVerdict
    reason: str  # sentence without a full stop; empty for "same"
    environment: TrainingEnvironment
    recorded: TrainingEnvironment | None = None  # by the update's trainer, if it did
    losses: bytes | None = None  # float32, little-endian, of each local step: the auditor's secret
    # None if the bits are equal, or there is no recorded update of the right length.
    difference: UpdateDifference | None = None

    def as_dict(self) -> dict[str, Any]:
        difference = self.difference
        return {
            "round": self.round,
            "client": int(self.client),
            "verdict": VERDICT_NAMES[self.verdict],
            "reason": self.reason,
            "recorded_environment": None if self.recorded is None else str(self.recorded),
            "relative_distance": None if difference is None else difference.relative,
            "spread_distance": None if difference is None else difference.spread,
        }

    def __str__(self) -> str:
        subject = f"round {self.round}, client {self.client}: {VERDICT_NAMES[self.verdict]}"
        return f"{subject}: {self.reason}" if self.reason else subject


@dataclass(frozen=True, slots=True)
class ComparedAttestation:
    """Another auditor's attestation, compared with the repetition of the update here."""

    round: int
    client: ClientId
    auditor: Address
    finding: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"client": int(self.client), "auditor": to_hex(self.auditor)}

    def __str__(self) -> str:
        about = f"attestation of round {self.round}, client {self.client}, by "
        reason = f": {self.reason}" if self.reason else ""
        return f"{about}{to_hex(self.auditor)}: {self.finding}{reason}"


@dataclass(frozen=True, slots=True)
class TrainingReplay:
    """Results of all chosen updates, ascending by round and client, and their attestations."""

    domain: Domain
    environment: TrainingEnvironment
    data: str
    updates: tuple[ReplayedUpdate, ...]
    attestations: tuple[ComparedAttestation, ...] = ()
    published: int = 0
    unpublished: str = ""

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(update.verdict for update in self.updates)
        return {name: counted[verdict] for verdict, name in VERDICT_NAMES.items()}

    @property
    def verdict(self) -> ReplayVerdict:
        """Other if any is, else not checkable if any is, else same."""
        verdicts = {update.verdict for update in self.updates}
        worst_first = (ReplayVerdict.OTHER, ReplayVerdict.NOT_CHECKABLE, ReplayVerdict.SAME)
        return next((each for each in worst_first if each in verdicts), ReplayVerdict.SAME)

    @property
    def sentence(self) -> str:
        same, other, not_checkable = self.counts.values()
        total = len(self.updates)
        return f"{same} of {total} updates same, {other} other, {not_checkable} not checkable"

    def lines(self, *, is_verbose: bool = False) -> Iterator[str]:
        """Yield the report for people; updates not trained for the same reason share a line."""
        yield self.sentence
        if any(update.losses is not None for update in self.updates):
            yield f"repeated with {self.environment}; {self.data}"
        else:
            yield f"{self.data}; the environment here is {self.environment}"
        shared = Counter(update.reason for update in self.updates if update.losses is None)
        for update in self.updates:
            if update.losses is None and shared[update.reason] > 1:
                continue
            if is_verbose or update.verdict is not ReplayVerdict.SAME:
                yield str(update)
        for reason, number in shared.items():
            if number > 1:
                yield f"{number} updates {VERDICT_NAMES[ReplayVerdict.NOT_CHECKABLE]}: {reason}"
        if self.attestations:
            findings = Counter(attestation.finding for attestation in self.attestations)
            named = ", ".join(f"{findings[name]} {name}" for name in sorted(findings))
            yield f"attestations by others: {named}"
        shown = [each for each in self.attestations if is_verbose or each.finding == FALSE]
        most = len(shown) if is_verbose else _MOST_ATTESTATIONS
        yield from map(str, shown[:most])
        if len(shown) > most:
            yield f"and {len(shown) - most} more false attestations: -v shows all"

    def as_dict(self) -> dict[str, Any]:
        environment = self.environment
        return {
            "contract": to_hex(self.domain.contract),
            "chain_id": self.domain.chain_id,
            "verdict": VERDICT_NAMES[self.verdict],
            "counts": self.counts,
            "environment": {"class": str(environment), "digest": to_hex(environment.digest)},
            "data": self.data,
            "updates": [update.as_dict() for update in self.updates],
            "attestations": [attestation.as_dict() for attestation in self.attestations],
            "published": self.published,
            "unpublished": self.unpublished,
        }


def _norm(one: NDArray[np.float32], other: NDArray[np.float32] | NDArray[np.float64]) -> float:
    return float(np.linalg.norm(one.astype(np.float64) - other))


def own_attestations(result: TrainingReplay, run: Digest, signer: Signer) -> list[Envelope]:
    """Return signed attestations of all updates of a replay that are the same or other."""
    envelopes = []
    for update in result.updates:
        if update.verdict is ReplayVerdict.NOT_CHECKABLE or update.losses is None:
            continue
        attestation = Attestation(
            auditor=signer.address,
            run=run,
            verdict=update.verdict,
            environment=update.environment,
            witness=replay_witness(signer.address, update.losses),
            signature=bytes(65),
        )
        statement = attestation.statement(update.round, update.client)
        signed = replace(attestation, signature=sign(signer, result.domain, statement))
        envelopes.append(Envelope(result.domain, update.round, update.client, signed))
    return envelopes


def compared_attestations(
    result: TrainingReplay, run: Digest, mailbox: Mailbox
) -> list[ComparedAttestation]:
    """Compare the attestations of a mailbox with the updates that were repeated here."""
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
    """Return finding and reason; it is false only if it names the environment of this replay."""
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
    """Results by the digest of what they follow from, appended one by one.

    A result counts only for the same run, round, client, commitment, environment, model code and
    samples. The file has the losses, and is private like a key. Several processes may add to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results: dict[str, dict[str, Any]] = {}
        with naming(f"--log {path}"):
            data = read_file(path, MAX_RESULT_BYTES) if path.exists() else b""
            path.parent.stat()  # before anything is trained
        *lines, torn = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                values = parse_json(line)
                _update(values, TrainingEnvironment("-", "-", "-", "-", "-", 1))
                self._results[values["origin"]] = values
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigurationError(
                    f"--log {path}: line {number} is not a result of a replay; name a new file"
                ) from error
        self._whole = len(data) - len(torn)

    def find(
        self, origin: Digest, environment: TrainingEnvironment, round_: int, client: ClientId
    ) -> ReplayedUpdate | None:
        values = self._results.get(origin.hex())
        known = {"round": round_, "client": client}  # the origin commits to both
        return None if values is None else _update(values | known, environment)

    def add(self, origin: Digest, update: ReplayedUpdate) -> None:
        values = asdict(replace(update, losses=None)) | {
            "origin": origin.hex(),
            "environment": None,
            "losses": None if update.losses is None else update.losses.hex(),
        }
        opener = partial(os.open, mode=0o600)
        with naming(f"--log {self._path}"), open(self._path, "a+b", opener=opener) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            whole = file.seek(min(self._whole, file.seek(0, os.SEEK_END)))
            others = file.read(MAX_RESULT_BYTES)
            file.truncate(whole + others.rfind(b"\n") + 1)  # a line cut short is none
            file.write(f"{json.dumps(values, allow_nan=False)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
            self._whole = file.tell()


def _update(values: dict[str, Any], environment: TrainingEnvironment) -> ReplayedUpdate:
    recorded, difference = values["recorded"], values["difference"]
    numbers = [0.0 if value is None else value for value in (difference or {}).values()]
    if not isinstance(values["reason"], str) or not all(map(math.isfinite, numbers)):
        raise ValueError("a reason or a distance is malformed")
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
