"""Instruction sets of a processor, and caps under which a newer one computes like an older one.

ATen, oneDNN and MKL choose their kernels by the processor's instruction set, once in the life of a
process. Kernels of two sets form sums in another order, so the last bits of an update differ. A cap
is four environment variables that they read; it holds for processes that start under it. What a
process sets later counts for the libraries that have not chosen yet, and nobody knows which.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError

InstructionSet = Literal["default", "avx2", "avx512"]

CAPS: dict[InstructionSet, dict[str, str]] = {
    # MKL's only branch that Intel documents for the processors of every maker.
    "default": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",
    },
    # MKL_CBWR also makes MKL independent of cache sizes and of the alignment of memory.
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "MKL_CBWR": "AVX2",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "MKL_CBWR": "AVX512",
    },
}
"""Environment variables of each cap, the oldest instruction set first."""

VARIABLES = (
    *CAPS["default"],
    "DNNL_MAX_CPU_ISA",  # this one and the next: older names that still count
    "MKL_DEBUG_CPU_TYPE",
    "ONEDNN_CPU_ISA_HINTS",
    "DNNL_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "OPENBLAS_CORETYPE",
)
"""Variables that change which kernels are chosen, or let them round to bfloat16."""

_NEEDED: dict[InstructionSet, set[str]] = {
    "default": {"sse4_1", "sse4_2"},
    "avx2": {"avx2", "fma"},
    "avx512": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
"""Flags of the processor that ATen, oneDNN and MKL need for each instruction set."""

SET_LATE = "with variables set after the start"
"""Ending of the instruction set of a process in which nobody knows what is in force."""

_MAX_VARIABLES = 60
_CPUINFO = Path("/proc/cpuinfo")
_ENVIRON = Path("/proc/self/environ")
_AT_IMPORT = dict(os.environ)
"""Environment when this module was imported: the nearest to the start where nothing says it."""


def processor_kind() -> str:
    """Return the kind of this machine's processor: its architecture, and maker and model on x86.

    Kernels are also chosen by the maker, and blocks of a sum by the sizes of its caches.
    """
    first = _first_processor()
    names = ("vendor_id", "cpu family", "model")
    if platform.machine() != "x86_64" or not all(name in first for name in names):
        return platform.machine() or "unknown"
    vendor, family, model = (first[name] for name in names)
    return f"x86_64 {vendor} family {family} model {model}"


def available_caps() -> tuple[InstructionSet, ...]:
    """Return the caps that this processor can do, the oldest first; none where it is not x86-64."""
    flags = set(_first_processor().get("flags", "").split())
    return tuple(name for name, needed in _NEEDED.items() if needed <= flags)


def require_cap(name: InstructionSet) -> None:
    """Reject a cap that this processor cannot do."""
    available = available_caps()
    if name in available:
        return
    if not available:
        raise ConfigurationError(
            f"machine.isa = {name}: {processor_kind()} has no instruction sets to choose from; "
            f"leave it out"
        )
    raise ConfigurationError(
        f"machine.isa = {name}: {processor_kind()} can do {', '.join(available)}"
    )


def cap_of(environment: Mapping[str, str]) -> InstructionSet | None:
    """Return the cap of processes that start with these environment variables, if any."""
    chosen = _chosen(environment)
    return next((name for name, variables in CAPS.items() if variables == chosen), None)


def cap_named(isa: str) -> InstructionSet | None:
    """Return the cap that an environment class names; None if it names another instruction set."""
    return next((name for name in CAPS if name == isa), None)


def instruction_set_here(capability: str) -> str:
    """Return the instruction set in force in this process, as an environment class names it."""
    if _chosen(os.environ) != _chosen(_environment_at_start()):
        return f"{capability.lower()} {SET_LATE}"
    return instruction_set(capability, os.environ)


def instruction_set(capability: str, environment: Mapping[str, str]) -> str:
    """Return the instruction set in force, as an environment class names it.

    Returns:
        The name of a cap, what ATen chose where nothing caps it ("avx512 uncapped"), or that with
        the variables that someone set otherwise.
    """
    if (cap := cap_of(environment)) is not None and cap == capability.lower():
        return cap
    chosen = [f"{name}={value}" for name, value in _chosen(environment).items()]
    text = " ".join(chosen) or "uncapped"
    if len(text) > _MAX_VARIABLES or not (text.isascii() and text.isprintable()):
        text = f"variables {sha256(text.encode(errors='surrogateescape')).hex()[:16]}"
    return f"{capability.lower()} {text}"


@contextmanager
def capped(name: InstructionSet | None) -> Iterator[None]:
    """Let processes that start in the `with` block compute under a cap; None changes nothing."""
    if name is None:
        yield
        return
    require_cap(name)
    before = {variable: os.environ.pop(variable, None) for variable in VARIABLES}
    os.environ.update(CAPS[name])
    try:
        yield
    finally:
        for variable, value in before.items():
            os.environ.pop(variable, None)
            if value is not None:
                os.environ[variable] = value


def _chosen(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in VARIABLES if name in environment}


@lru_cache(maxsize=1)
def _environment_at_start() -> dict[str, str]:
    """Return the environment that this process, or the one it was forked from, started with."""
    try:
        data = _ENVIRON.read_bytes()
    except OSError:
        return _AT_IMPORT
    pairs = (os.fsdecode(line).partition("=") for line in data.split(b"\0"))
    return {name: value for name, _, value in pairs}


@lru_cache(maxsize=1)
def _first_processor() -> dict[str, str]:
    """Return what the system says of the first processor; nothing where it says it otherwise."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
