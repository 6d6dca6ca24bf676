"""Devices, and the settings with which equal inputs give equal bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ledger.protocol.errors import ConfigurationError

_NAME = re.compile(r"cpu|auto|cuda(?::(?P<index>[0-9]{1,2}))?")


def device_named(name: str) -> torch.device:
    """Return the device of a setting.

    Args:
        name: "cpu", "cuda" for the first card, "cuda:N" for another, or "auto" for CUDA where
            available.
    """
    index = _index_in(name)
    if index is not None:
        _require_card(index)
        return torch.device(name)
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ConfigurationError("machine.device = cuda: this machine, or this torch, has no CUDA")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


def require_device_name(name: str) -> None:
    """Reject a name that is no device's; it need not be one of this machine's."""
    _index_in(name)


def worker_devices(name: str, workers: int) -> list[str]:
    """Return the device of each worker of this machine.

    Workers on "cuda" take turns on the first card and all others of its kind: an update would have
    other last digits on a card of another kind.
    """
    if name != "cuda":
        return [name] * workers
    first, *others = (
        (torch.cuda.get_device_name(card), torch.cuda.get_device_capability(card))
        for card in range(torch.cuda.device_count())
    )
    cards = [0, *(card for card, kind in enumerate(others, start=1) if kind == first)]
    return [f"cuda:{cards[worker % len(cards)]}" for worker in range(workers)]


def card_gib(device: torch.device) -> int | None:
    """Return the memory of a card in whole GiB; None of the processor.

    All of it, not what is free: the bytes of an update follow from it, by the size of the chunks.
    """
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
    if isinstance(error, torch.OutOfMemoryError) or isinstance(
        error.__context__, torch.OutOfMemoryError
    ):
        return (
            "the card's memory is not enough: let fewer machine.workers share it, end other "
            "programs that use it, or set machine.device = cpu"
        )
    if isinstance(error, RuntimeError) and "CUDA error" in str(error):
        reason = str(error).splitlines()[0][:200]
        return f"the card failed, or is gone: {reason}: see nvidia-smi, and resume the run"
    return None


@contextmanager
def without_filling() -> Iterator[None]:
    """Leave new memory as it is, which deterministic mode fills: for code that reads none of it."""
    mode: Any = torch.utils.deterministic  # whose attribute is made when the module is imported
    before = mode.fill_uninitialized_memory
    mode.fill_uninitialized_memory = False
    try:
        yield
    finally:
        mode.fill_uninitialized_memory = before


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Compute with one intra-op thread and deterministic kernels; restore the settings after.

    The thread count changes the order of sums inside an operation, and so the bytes of a result.
    Parallelism comes from processes instead, each of which trains whole clients. Nor does a
    script's choice of a lower precision of products, or of no oneDNN, change them.
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
    """Multiply as float32 does, with oneDNN, whatever `torch.set_float32_matmul_precision` says."""
    onednn: Any = torch.backends.mkldnn
    cuda: Any = torch.backends.cuda
    operations = (onednn.matmul, onednn.conv, onednn.rnn, cuda.matmul)
    before = [operation.fp32_precision for operation in operations]
    is_enabled, chosen = onednn.enabled, _matmul_precision()
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


def _matmul_precision() -> str:
    """Return what `torch.set_float32_matmul_precision` has set, or the default."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # the precision of operations was set one by one
        return "highest"


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


def _index_in(name: str) -> int | None:
    """Return the number of the card in a device's name; None if it names none."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigurationError(
            f"machine.device: unknown device {name!r:.80}; known are cpu, cuda, cuda:N, auto"
        )
    return None if match["index"] is None else int(match["index"])


def _require_card(index: int) -> None:
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if cards == 0:
        reason = "this machine, or this torch, has no CUDA"
    elif index >= cards:
        reason = f"this machine has {cards} CUDA {'card' if cards == 1 else 'cards'}, from cuda:0"
    else:
        return
    raise ConfigurationError(f"machine.device = cuda:{index}: {reason}")
