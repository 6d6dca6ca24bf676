"""Repeated training: the environment that an update needs, the verdict, and the witness of it.

An update is a function of the chain's model, the round's seed, the recorded settings, the owner's
data, and the environment of its floating-point sums (docs/reference/protocol/environments.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ledger.protocol import canonical
from ledger.protocol.encoding import keccak256, sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import Address, Digest

MAX_ENVIRONMENT_BYTES = 1_000
MAX_ENVIRONMENT_TEXT = 100  # characters of each text of an environment
_TEXTS = ("torch", "path", "processor", "isa", "device")


class ReplayVerdict(IntEnum):
    """Result of repeating one update."""

    SAME = 1  # bit for bit the update that the chain has
    OTHER = 2  # another vector, in the environment that was recorded
    NOT_CHECKABLE = 3  # something that the update follows from is missing or differs


@dataclass(frozen=True, slots=True)
class TrainingEnvironment:
    """Class of environments that turn equal inputs into an update of equal bytes."""

    torch: str  # version of PyTorch with its build: 2.13.0+cpu
    path: str
    processor: str  # "x86_64 AuthenticAMD family 26 model 2", "arm64"
    isa: str  # a cap ("avx512", "avx2", "default"), or "avx512 uncapped"
    device: str  # cpu, or the kind of the GPU, with its libraries' versions
    threads: int

    @property
    def digest(self) -> Digest:
        """sha256 of the document; attestations name it."""
        return sha256(encode_environment(self))

    def __str__(self) -> str:
        threads = "thread" if self.threads == 1 else "threads"
        where = f"{self.processor} {self.isa}, {self.device}, {self.threads} {threads}"
        return f"torch {self.torch}, {self.path} path, {where}"


def encode_environment(environment: TrainingEnvironment) -> bytes:
    """Return the bytes of an environment's document."""
    texts = {name: getattr(environment, name) for name in _TEXTS}
    return canonical.document(**texts, threads=environment.threads)


def decode_environment(data: bytes) -> TrainingEnvironment:
    """Return the environment in untrusted bytes."""
    types = dict.fromkeys(_TEXTS, str) | {"threads": int}
    fields = canonical.decode(data, MAX_ENVIRONMENT_BYTES, containers=1)
    value = canonical.versioned_fields("training environment", fields, types)
    texts = {name: value[name] for name in _TEXTS}
    for name, text in texts.items():
        if not (1 <= len(text) <= MAX_ENVIRONMENT_TEXT and text.isascii() and text.isprintable()):
            raise EncodingError(
                f"{name} {text!r:.80} of an environment: 1 to {MAX_ENVIRONMENT_TEXT} printable "
                f"ASCII characters"
            )
    return TrainingEnvironment(**texts, threads=canonical.unsigned("threads", value["threads"], 32))


def replay_witness(auditor: Address, losses: bytes) -> Digest:
    """Return the witness of a replay, which needs the whole trajectory and is its auditor's own."""
    return keccak256(auditor + sha256(losses))
