"""Devices, instruction sets, and the settings that give equal bytes for equal inputs.

ATen, oneDNN and MKL choose their kernels by the processor's instruction set, once in the life of a
process. Kernels of two sets form sums in another order, so the last bits of an update differ. A cap
is four environment variables that they read; it holds for processes that start under it. It is not
known which libraries a variable affects that a process sets later.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError

InstructionSet = Literal["default", "avx2", "avx512"]

_CAP_VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
)
_CAP_VALUES: dict[InstructionSet, tuple[str, ...]] = {
    # MKL's only branch that Intel documents for the processors of every maker.
    "default": ("default", "SSE41", "SSE4_2", "COMPATIBLE"),
    # MKL_CBWR also makes MKL independent of cache sizes and of the alignment of memory.
    "avx2": ("avx2", "AVX2", "AVX2", "AVX2"),
    "avx512": ("avx512", "AVX512_CORE", "AVX512", "AVX512"),
}
CAPS = {
    name: dict(zip(_CAP_VARIABLES, values, strict=True)) for name, values in _CAP_VALUES.items()
}
"""Environment variables of each cap, the oldest instruction set first."""

VARIABLES = (
    *_CAP_VARIABLES,
    *("DNNL_MAX_CPU_ISA", "MKL_DEBUG_CPU_TYPE"),  # older names that still count
    *("ONEDNN_CPU_ISA_HINTS", "DNNL_CPU_ISA_HINTS"),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE", "OPENBLAS_CORETYPE"),
)
"""Variables that change which kernels are chosen, or let them round to bfloat16."""

_NEEDED: dict[InstructionSet, set[str]] = {
    "default": {"sse4_1", "sse4_2"},
    "avx2": {"avx2", "fma"},
    "avx512": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
"""Flags of the processor that ATen, oneDNN and MKL need for each instruction set."""

SET_LATE = "with variables set after the start"  # ending of an instruction set that is not known
_CPUINFO = Path("/proc/cpuinfo")
_ENVIRON = Path("/proc/self/environ")
_AT_IMPORT = dict(os.environ)
"""Environment when this module was imported, where the system does not show that at the start."""


def processor_kind() -> str:
    """Return this machine's architecture, and on x86 maker and model: kernels follow from them."""
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
    if name not in available:
        known = f"can do {', '.join(available)}"
        if not available:
            known = "has no instruction sets to choose from; leave it out"
        raise ConfigurationError(f"machine.isa = {name}: {processor_kind()} {known}")


def cap_of(environment: Mapping[str, str]) -> InstructionSet | None:
    """Return the cap of processes that start with these environment variables, if any."""
    chosen = _chosen(environment)
    return next((name for name, variables in CAPS.items() if variables == chosen), None)


def cap_named(isa: str) -> InstructionSet | None:
    """Return the cap that an environment class names; None if it names another instruction set."""
    return next((name for name in CAPS if name == isa), None)


def isa_in_force() -> str:
    """Return torch's instruction set here, as an environment class names it."""
    capability = torch.backends.cpu.get_cpu_capability()
    if _chosen(os.environ) != _chosen(_environment_at_start()):
        return f"{capability.lower()} {SET_LATE}"
    return instruction_set(capability, os.environ)


def instruction_set(capability: str, environment: Mapping[str, str]) -> str:
    """Return the name of the cap in force, or the newest set that ATen uses with what is set."""
    if (cap := cap_of(environment)) is not None and cap == capability.lower():
        return cap
    chosen = [f"{name}={value}" for name, value in _chosen(environment).items()]
    text = " ".join(chosen) or "uncapped"
    if len(text) > 60 or not (text.isascii() and text.isprintable()):
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
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


_NAME = re.compile(r"cpu|auto|cuda(?::(?P<index>[0-9]{1,2}))?")


def device_named(name: str) -> torch.device:
    """Return a device: "cpu", "cuda" for the first card, "cuda:N", or "auto" for CUDA if any."""
    index, available = card_index(name), torch.cuda.is_available()
    if not available and (index is not None or name == "cuda"):
        raise ConfigurationError(
            f"machine.device = {name}: CUDA is not available on this machine or in this torch"
        )
    if index is None:
        return torch.device("cuda" if available and name != "cpu" else "cpu")
    cards = torch.cuda.device_count()
    if index >= cards:
        number = "1 CUDA card" if cards == 1 else f"{cards} CUDA cards"
        raise ConfigurationError(f"machine.device = {name}: this machine has {number}, from cuda:0")
    return torch.device(name)


def card_index(name: str) -> int | None:
    """Return the number of the card in a device's name, of any machine; None if it names none."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigurationError(
            f"machine.device: unknown device {name!r:.80}; known are cpu, cuda, cuda:N, auto"
        )
    return None if match["index"] is None else int(match["index"])


def worker_devices(name: str, workers: int) -> list[str]:
    """Return each worker's device: with "cuda" cards of the first's kind, whose digits agree."""
    if name != "cuda":
        return [name] * workers
    first, *others = (
        (torch.cuda.get_device_name(card), torch.cuda.get_device_capability(card))
        for card in range(torch.cuda.device_count())
    )
    cards = [0, *(card for card, kind in enumerate(others, start=1) if kind == first)]
    return [f"cuda:{cards[worker % len(cards)]}" for worker in range(workers)]


def card_gib(device: torch.device) -> int | None:
    """Return all memory of a card in GiB, which determines the plan; None for the processor."""
    if device.type == "cpu":
        return None
    memory: int = torch.cuda.get_device_properties(device).total_memory
    return memory >> 30


def cards_described() -> str:
    """Return this machine's cards in words, or why torch uses none; `cmfl doctor` prints it."""
    if torch.version.cuda is None:
        return "no GPU: this torch is built without CUDA"
    if not torch.cuda.is_available():
        return "no GPU: the driver shows torch none"
    cards = (torch.device("cuda", card) for card in range(torch.cuda.device_count()))
    named = (f"{card} {torch.cuda.get_device_name(card)}, {card_gib(card)} GiB" for card in cards)
    return f"{'; '.join(named)}; CUDA {torch.version.cuda}"


def card_failure(error: BaseException) -> str | None:
    """Return a sentence about an exception that a card caused; None of any other."""
    # What ends a recording after it may fail too, and says less.
    if any(isinstance(each, torch.OutOfMemoryError) for each in (error, error.__context__)):
        return (
            "the card's memory is not enough: let fewer machine.workers share it, end other "
            "programs that use it, or set machine.device = cpu"
        )
    if isinstance(error, RuntimeError) and "CUDA error" in str(error):
        reason = str(error).splitlines()[0][:200]
        return f"the card failed, or is gone: {reason}: see nvidia-smi, and resume the run"
    return None


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Compute with one intra-op thread, float32 products and deterministic kernels.

    The thread count changes the order of sums inside an operation, and so the bytes of a result.
    Parallelism comes from processes instead. All settings are restored after.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _float32_products():
            if device.type == "cuda":
                with torch.cuda.device(device), _deterministic_cuda():
                    yield
            else:
                yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _float32_products() -> Iterator[None]:
    onednn: Any = torch.backends.mkldnn
    cuda: Any = torch.backends.cuda
    operations = (onednn.matmul, onednn.conv, onednn.rnn, cuda.matmul)
    before = [operation.fp32_precision for operation in operations]
    is_enabled, chosen = onednn.enabled, "highest"
    with suppress(RuntimeError):  # the precision of operations was set one by one
        chosen = torch.get_float32_matmul_precision()
    onednn.enabled = True
    torch.set_float32_matmul_precision("highest")  # torch refuses to compute if both ways differ
    for operation in operations:
        operation.fp32_precision = "ieee"
    try:
        yield
    finally:
        onednn.enabled = is_enabled
        torch.set_float32_matmul_precision(chosen)
        for operation, precision in zip(operations, before, strict=True):
            operation.fp32_precision = precision


@contextmanager
def _deterministic_cuda() -> Iterator[None]:
    # cuBLAS reads this with its first handle, and is not deterministic without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    # Not on the CPU, whose kernels here are deterministic: the first call costs a second.
    torch.use_deterministic_algorithms(True)
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.use_deterministic_algorithms(before)
