"""`shakespeare`: the next character of a role's text, one client for each speaking role (LEAF).

A sample is a window of 80 characters and the next one; windows start at every character.

* `split = "official"` is that of the files: random over overlapping windows, so that test
  characters occur in training windows. The paper's figures were made with it.
* `split = "position"` is the last fifth of each role: no training window overlaps the test.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clients.datasets.collating import as_tokens
from clients.datasets.data_set import DataSet, FileFormat, HubFiles
from clients.datasets.federated_data import DataForm
from clients.datasets.files.data_archive import ArrayRule, read_arrays
from clients.datasets.files.layout import FileKind, Layout
from clients.datasets.files.leaf import LeafPart, LeafUser, UserSamples, read_leaf, train_first
from clients.datasets.files.lines import read_csv
from clients.datasets.records import PooledData, Records, numbered, pooled
from clients.datasets.settings_table import SettingsTable
from ledger.protocol.errors import ConfigurationError

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
WINDOW = 80
TEST_SHARE = 0.2
MAX_ROWS = 10_000_000
LONGEST_ROLE = 200
RULES = {
    "chars": ArrayRule("|u1", (None,), 0, len(ALPHABET) - 1, rows="characters"),
    "text_offset": ArrayRule("<i8", (None,), 0, rows="offsets"),
    "sample_offset": ArrayRule("<i8", (None,), 0, rows="offsets"),
    "is_test": ArrayRule("|u1", (None,), 0, 1),
    "role": ArrayRule("<U", (None,), rows="roles"),
    "alphabet": ArrayRule("<U1", (len(ALPHABET),), rows="alphabet"),
}
COLUMNS = ("character_id", "x", "y")
_NO_CHARACTER = 255


class ShakespeareOptions(SettingsTable):
    """Settings: the split; by default the files' own if they have one."""

    split: Literal["official", "position"] | None = None


def _arrays(layout: Layout) -> Records:
    """Return the windows of our own file, which has each text once."""
    path, arrays = layout.path, read_arrays(layout.path, RULES)
    if "".join(arrays["alphabet"]) != ALPHABET:
        raise ConfigurationError(f"{path}: alphabet: must be LEAF's {len(ALPHABET)} characters")
    chars, text, sample = arrays["chars"], arrays["text_offset"], arrays["sample_offset"]
    sizes, lengths = np.diff(sample), np.diff(text)
    if len(arrays["role"]) != len(sizes) or len(set(arrays["role"])) != len(sizes):
        raise ConfigurationError(
            f"{path}: {len(arrays['role'])} roles, of which {len(set(arrays['role']))} different, "
            f"for {len(sizes)} texts"
        )
    ends = ((text, len(chars)), (sample, len(arrays["is_test"])))
    if (
        any(offset[0] != 0 or offset[-1] != end for offset, end in ends)
        or (sizes < 1).any()
        or (lengths - sizes != WINDOW).any()
    ):
        raise ConfigurationError(
            f"{path}: text_offset and sample_offset: must rise from 0 to the end, by {WINDOW} "
            "more characters than samples in each role"
        )
    starts = np.arange(sample[-1]) + np.repeat(np.arange(len(sizes)) * WINDOW, sizes)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    labels = chars[starts + WINDOW].astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(chars, WINDOW)[starts]
    is_test = arrays["is_test"].astype(np.bool_)
    return Records(windows, labels, owner, tuple(map(str, arrays["role"])), is_test)


def _lines(layout: Layout) -> Records:
    """Return the windows of the Hugging Face layout, which has no split."""
    path = layout.files[0]
    roles: list[str] = []
    content = bytearray()
    for role, x, y in read_csv(path, COLUMNS):
        where = f"{path}: sample {len(roles)}"
        if not 0 < len(role) <= LONGEST_ROLE:
            raise ConfigurationError(
                f"{where}: character_id: must have 1 .. {LONGEST_ROLE} characters"
            )
        if len(roles) == MAX_ROWS:
            raise ConfigurationError(f"{path}: more than {MAX_ROWS} samples")
        content += _bytes_of(where, x, y)
        roles.append(role)
    if not roles:
        raise ConfigurationError(f"{path}: has no samples")
    owner, owners = numbered(roles)
    rows = _numbered_characters(str(path), content)
    return Records(rows[:, :WINDOW], rows[:, WINDOW].astype(np.int64), owner, owners)


def _leaf_part(where: str, x: list[Any], y: list[Any]) -> LeafPart:
    content = bytearray()
    for window, following in zip(x, y, strict=True):
        content += _bytes_of(where, window, following)
    rows = _numbered_characters(where, content)
    return LeafPart(rows[:, :WINDOW], rows[:, WINDOW].astype(np.int64))


def _in_text_order(user: LeafUser) -> UserSamples:
    """Return training and test windows merged into the text that they were cut from.

    Both are in text order. Where neither continues the last window, training comes first.
    """
    samples = train_first(user)
    windows = [window.tobytes() for window in samples.x]
    successors = [
        window[1:].tobytes() + bytes([label])
        for window, label in zip(samples.x, samples.y.tolist(), strict=True)
    ]
    split, end = int(np.count_nonzero(~samples.is_test)), len(windows)
    inner = set(successors)
    train, test, order = 0, split, list[int]()
    while train < split and test < end:
        if order:
            takes_test = windows[test] == successors[order[-1]] != windows[train]
        else:  # the first window of a text continues no other one
            takes_test = windows[test] not in inner and windows[train] in inner
        order.append(test if takes_test else train)
        test, train = test + takes_test, train + (not takes_test)
    order += [*range(train, split), *range(test, end)]
    return UserSamples(samples.x[order], samples.y[order], samples.is_test[order])


def _bytes_of(where: str, window: object, following: object) -> bytes:
    if not isinstance(window, str) or not isinstance(following, str):
        raise ConfigurationError(f"{where}: x and y must be text")
    if len(window) != WINDOW or len(following) != 1:
        raise ConfigurationError(
            f"{where}: {len(window)} characters and {len(following)} that follow; must be "
            f"{WINDOW} and 1"
        )
    try:
        return (window + following).encode("latin-1")
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{where}: {error.object[error.start]!r} is not in the alphabet"
        ) from error


def _numbered_characters(where: str, content: bytearray) -> NDArray[np.uint8]:
    """Return the alphabet index of each character, one row per sample."""
    index_of = np.full(256, _NO_CHARACTER, dtype=np.uint8)
    index_of[np.frombuffer(ALPHABET.encode("latin-1"), dtype=np.uint8)] = np.arange(len(ALPHABET))
    characters = np.frombuffer(content, dtype=np.uint8)
    numbers = index_of[characters]
    if (numbers == _NO_CHARACTER).any():
        first = int(np.argmax(numbers == _NO_CHARACTER))
        raise ConfigurationError(
            f"{where}: {chr(characters[first])!r} is not in the alphabet (sample "
            f"{first // (WINDOW + 1)})"
        )
    return numbers.reshape(-1, WINDOW + 1)


def _pool(records: Records, options: ShakespeareOptions, _: np.random.Generator) -> PooledData:
    return pooled(
        records,
        _is_test(records, options.split),
        DataForm((WINDOW,), len(ALPHABET), "int64", len(ALPHABET)),
        records.x,
        as_tokens,
        "roles",
    )


def _is_test(records: Records, split: str | None) -> NDArray[np.bool_]:
    if split == "official" and records.is_test is None:
        raise ConfigurationError(
            "data.options.split = 'official': the files state no split; there is 'position'"
        )
    if split != "position" and records.is_test is not None:
        return records.is_test
    if records.owner is None:
        raise ValueError("windows without roles")
    is_test = np.zeros(len(records.y), dtype=np.bool_)
    for number, role in enumerate(records.owners):
        rows = np.flatnonzero(records.owner == number)
        _require_one_text(role, records.x[rows], records.y[rows])
        is_test[rows[len(rows) - int(TEST_SHARE * len(rows) + 0.5) :]] = True
    return is_test


def _require_one_text(role: str, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
    """Reject windows that are not consecutive, as their last fifth would mean nothing."""
    follows = (x[1:, :-1] == x[:-1, 1:]).all(axis=1) & (x[1:, -1] == y[:-1])
    if not follows.all():
        raise ConfigurationError(
            f"data.options.split = 'position': window {int(np.argmin(follows)) + 1} of role "
            f"{role!r} does not continue the one before it: the files are not in the order of "
            "the text"
        )


SHAKESPEARE = DataSet(
    "shakespeare",
    ShakespeareOptions,
    _pool,
    (
        FileFormat(FileKind.ARRAYS, frozenset(RULES), _arrays),
        FileFormat(FileKind.LINES, frozenset(COLUMNS), _lines),
        FileFormat(
            FileKind.LEAF,
            frozenset(),
            lambda layout: read_leaf(layout, _leaf_part, _in_text_order),
        ),
    ),
    owned_by="roles",
    is_input_of=lambda value: isinstance(value, str),
    hub=HubFiles("flwrlabs/shakespeare", (("main", r"shakespeare\.csv"),)),
)
