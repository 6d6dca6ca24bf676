"""Resource limits of this process, asked before the libraries are loaded that need more.

OpenBLAS ends the process with exit code 1 where it finds too little memory, and with SIGINT where
it can start no thread, while numpy is being imported: a false verdict, and a false Ctrl-C.
"""

from __future__ import annotations

import mmap
import os
import resource

LEAST_BYTES = 256 * 2**20
"""Address space into which every library of the command line can be loaded."""

AMPLE_BYTES = 8 * 2**30
"""Address space in which a thread for each core has its stack and its buffer."""


def allowed_bytes() -> int | None:
    """Return how much address space this process may use, None where nothing limits it."""
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def require_memory() -> None:
    """Refuse to begin where there is less address space left than the libraries need.

    Raises:
        MemoryError: names how much it takes.
    """
    try:  # asks the system, which may also have promised all of its memory to others
        mmap.mmap(-1, LEAST_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError(f"it takes {LEAST_BYTES // 2**20} MiB more to begin") from error
    allowed = allowed_bytes()
    if allowed is not None and allowed < AMPLE_BYTES:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def too_little_memory(error: MemoryError | ImportError) -> str:
    """Return what a user is told where memory has run out.

    Args:
        error: what was raised.
    """
    parts = ["not enough memory", limit_in_words(), str(error)]
    return ": ".join(part for part in parts if part)


def limit_in_words() -> str:
    """Return how much address space this process may use; empty where nothing limits it."""
    allowed = allowed_bytes()
    return "" if allowed is None else f"this process may use {allowed // 2**20} MiB (ulimit -v)"
