"""The targets of a user's own data: labels, numbers, or the tokens themselves.

`causal-lm` has the next token as the target of each. `masked-lm` hides tokens as BERT does (Devlin,
Chang, Lee, Toutanova 2019, section 3.1): 15 of 100, of which 80 of 100 become the mask, 10 another
token, and 10 stay. They are drawn once, from the stream of the split, so that an update can be
repeated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.federated_data import LANGUAGE, NO_TARGET, NO_TOKEN, PER_TOKEN, Task
from clients.datasets.own import MOST_CLASSES
from clients.datasets.own_columns import FileOptions
from clients.datasets.sequences import next_tokens, require_targets
from ledger.protocol.errors import ConfigurationError

_HIDDEN, _MASKED, _REPLACED = 0.15, 0.8, 0.9


def targets_of(
    where: str, x: NDArray[Any], y: NDArray[Any] | None, options: FileOptions
) -> NDArray[Any]:
    """Return the validated targets of some samples.

    Args:
        y: labels as the file has them; None where the tokens themselves are the targets.
    """
    if y is None:
        return next_tokens(where, x) if options.task == "causal-lm" else x
    if options.is_language:
        raise ConfigurationError(
            f"{where}: y: the task {options.task} has the tokens as targets, and takes no labels"
        )
    if options.task == "regress":
        return _numbers(where, y, options.outputs)
    if options.task == "token-classify":
        if y.dtype.kind not in "iu" or y.shape != x.shape:
            raise ConfigurationError(
                f"{where}: y: must be whole numbers of shape {x.shape}, a class for each token, "
                f"not {y.dtype} of shape {y.shape}"
            )
        y = np.where(x == NO_TOKEN, NO_TARGET, y)
        require_targets(where, y)
        _require_classes(where, y[y != NO_TARGET], options.outputs)
    else:
        _require_classes(where, y, options.outputs)
    return y.astype(np.int64)


def vocabulary_of(options: FileOptions) -> int | None:
    """Return the number of tokens that the options state; None if they do not."""
    if options.tokenizer is None:
        return options.vocabulary
    size = int(_tokenizer(options.tokenizer).get_vocab_size())
    if options.vocabulary not in {None, size}:
        raise ConfigurationError(
            f"data.options.vocabulary = {options.vocabulary}: the tokenizer has {size} tokens"
        )
    return size


def mask_of(options: FileOptions, vocabulary: int | None) -> int:
    """Return the token that hides others."""
    mask: int | None = options.mask
    if mask is None and options.tokenizer is not None:
        from clients.datasets.own_texts import mask_token  # noqa: PLC0415 - see `_tokenizer`

        mask = mask_token(_tokenizer(options.tokenizer))
    if mask is None or vocabulary is None or mask >= vocabulary:
        raise ConfigurationError(
            f"data.options.mask = {mask}: masked-lm needs the token that hides others, 0 .. "
            f"{(vocabulary or 1) - 1}, and the tokenizer names none"
        )
    return mask


def hidden(
    x: NDArray[np.int64], mask: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return inputs with hidden tokens, at least one in each row, and the targets.

    Args:
        x: tokens, shape (n, length).
    """
    is_token = x != NO_TOKEN
    drawn = np.where(is_token, rng.random(x.shape), 2.0)
    chosen = drawn < _HIDDEN
    chosen[np.arange(len(x)), drawn.argmin(axis=1)] = True
    fate = rng.random(x.shape)
    others = rng.choice(x[is_token], size=x.shape)
    replaced = np.where(fate < _MASKED, mask, np.where(fate < _REPLACED, others, x))
    return np.where(chosen, replaced, x), np.where(chosen, x, NO_TARGET)


def class_count(task: Task, y: NDArray[Any], stated: int | None, vocabulary: int | None) -> int:
    """Return the number of classes, or of the outputs of `regress`."""
    if task == "regress":
        return int(y.shape[1])
    if task in LANGUAGE:
        assert vocabulary is not None, "its inputs are tokens"
        return vocabulary
    counted = y[y != NO_TARGET] if task in PER_TOKEN else y
    return stated or int(counted.max()) + 1


def _numbers(where: str, y: NDArray[Any], outputs: int | None) -> NDArray[np.float32]:
    if outputs is not None:
        raise ConfigurationError(
            f"data.options.classes = {outputs}: the task regress has no classes; y says how many "
            f"numbers"
        )
    if y.dtype.kind not in "iuf" or y.ndim not in {1, 2} or (y.ndim == 2 and not y.shape[1]):
        raise ConfigurationError(
            f"{where}: y: must be numbers, one or one row of them for each sample, not {y.dtype} "
            f"of shape {y.shape}"
        )
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float32)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers).all(axis=1)))
        raise ConfigurationError(
            f"{where}: y: row {row} holds a number that is not finite (NaN, infinite, or too large "
            f"for float32)"
        )
    return numbers


def _require_classes(where: str, y: NDArray[Any], classes: int | None) -> None:
    most = (classes or MOST_CLASSES) - 1
    if not 0 <= y.min() <= y.max() <= most:
        raise ConfigurationError(f"{where}: y: labels {y.min()} .. {y.max()}, outside 0 .. {most}")
    if classes is None and y.max() < 1:
        raise ConfigurationError(f"{where}: y: all labels are 0; there must be 2 classes or more")


def _tokenizer(path: str) -> Any:
    # Only those who have texts load what makes tokens of them.
    from clients.datasets.own_texts import tokenizer_at  # noqa: PLC0415

    return tokenizer_at(Path(path))
