"""Resource limits of this process, checked before large libraries are loaded.

With too little memory OpenBLAS exits with code 1 while numpy is imported, and with SIGINT if it
cannot start a thread: a false verdict, and a false Ctrl-C.
"""

from __future__ import annotations

import mmap
import os
import resource

LEAST_BYTES = 256 * 2**20
"""Address space that the libraries of the command line need."""

AMPLE_BYTES = 8 * 2**30
"""Address space with room for the stack and buffer of one thread per core."""


def allowed_bytes() -> int | None:
    """Return the limit of this process's address space; None for no limit."""
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def require_memory() -> None:
    """Require the address space that the libraries need.

    Raises:
        MemoryError: names the required amount.
    """
    try:  # also fails if the system has promised its memory to others
        mmap.mmap(-1, LEAST_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise MemoryError(f"it takes {LEAST_BYTES // 2**20} MiB more to begin") from error
    allowed = allowed_bytes()
    if allowed is not None and allowed < AMPLE_BYTES:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def too_little_memory(error: MemoryError | ImportError) -> str:
    """Return the message for a lack of memory."""
    parts = ["not enough memory", limit_in_words(), str(error)]
    return ": ".join(part for part in parts if part)


def limit_in_words() -> str:
    """Return a description of the address space limit; empty without one."""
    allowed = allowed_bytes()
    return "" if allowed is None else f"this process may use {allowed // 2**20} MiB (ulimit -v)"
