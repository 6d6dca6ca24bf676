"""The task of a verification process, its resource limits, and its messages.

A message is a kind byte and JSON, never a pickled object. A process without a verdict gives the
reason by its exit code, which needs no memory.
"""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from ledger.audit.earlier_report import EarlierReportError
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NICENESS = 5
"""Requests come first."""


class Exit(IntEnum):
    """Why a process ended without a verdict."""

    FAULT = 1
    MEMORY = 71
    CHAIN = 72
    EARLIER_REPORT = 73


class Message(bytes, Enum):
    """Kind of a message."""

    PROGRESS = b"p"
    SUMMARY = b"s"
    REPORT = b"r"


@dataclass(frozen=True, slots=True)
class AuditTask:
    """One audit with its resource limits.

    Attributes:
        chain_file: the embedded chain.
        rpc_url: a node to read instead; it may hold a secret.
        rpc_timeout_seconds: how long one answer of the node may take.
        chain_id: that the chain must have.
        genesis: hash of block 0 that it must have.
        address: of the contract.
        from_block: that created it.
        blob_folder: where the blobs are.
        strict: whether remarks leave the audit open.
        head: that the auditor has kept; None for none.
        earlier: the report that it builds on; None for none.
        memory_bytes: that the process may ask for.
        cpu_seconds: that it may take.
    """

    chain_file: Path
    rpc_url: str | None = field(repr=False)
    rpc_timeout_seconds: float
    chain_id: int
    genesis: bytes
    address: str
    from_block: int
    blob_folder: Path
    strict: bool
    head: bytes | None
    earlier: bytes | None = field(repr=False)
    memory_bytes: int
    cpu_seconds: int


def limit_resources(memory_bytes: int, cpu_seconds: int) -> None:
    """Bound what this process may take, and let others go first."""
    # Not the address space: a chain file, libraries and threads reserve much and use little of it.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn what keeps an audit from a verdict into the process's exit code.

    Yields:
        Nothing.

    Raises:
        SystemExit: with that code.
    """
    try:
        yield
    except MemoryError:
        raise SystemExit(Exit.MEMORY) from None
    except EarlierReportError:
        raise SystemExit(Exit.EARLIER_REPORT) from None
    except ChainError:
        raise SystemExit(Exit.CHAIN) from None
