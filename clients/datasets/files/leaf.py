"""LEAF's folders: `train/*.json` and `test/*.json`, each with some users and all their samples.

{"users": [name, ...], "num_samples": [n, ...], "user_data": {name: {"x": [...], "y": [...]}}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clients.datasets.federated_data import Labels
from clients.datasets.files.layout import Layout
from clients.datasets.records import Records
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ConfigurationError

MAX_FILE_BYTES = 2 * 2**30
MAX_SAMPLES = 10_000_000
LONGEST_NAME = 200


class LeafPart(NamedTuple):
    """Some samples of one user, in the form of records."""

    x: NDArray[Any]
    y: Labels


Convert = Callable[[str, list[Any], list[Any]], LeafPart]
"""Makes samples of a file's inputs and labels; the first argument is their source in messages."""


@dataclass(slots=True)
class LeafUser:
    """One user's samples: at most one part for training and one for the test."""

    train: LeafPart | None = None
    test: LeafPart | None = None


class UserSamples(NamedTuple):
    """All samples of one user in their final order; `is_test` marks the test's."""

    x: NDArray[Any]
    y: Labels
    is_test: NDArray[np.bool_]


def train_first(user: LeafUser) -> UserSamples:
    """Return a user's training samples, then those for the test."""
    parts = [part for part in (user.train, user.test) if part is not None]
    return UserSamples(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([np.full(len(part.y), part is user.test) for part in parts]),
    )


def read_leaf(
    layout: Layout, convert: Convert, ordered: Callable[[LeafUser], UserSamples] = train_first
) -> Records:
    """Return the samples of a LEAF folder, users by ascending name, with the folder's split.

    Args:
        ordered: puts a user's samples into their final order.
    """
    users: dict[str, LeafUser] = {}
    total = 0
    for path in layout.files:
        split = path.parent.name
        for name, x, y in _users(path):
            where = f"{path}: {name!r}"
            user = users.setdefault(name, LeafUser())
            if getattr(user, split) is not None:
                raise ConfigurationError(f"{where}: is in two files of {split}/")
            setattr(user, split, convert(where, x, y))
            total += len(y)
            if total > MAX_SAMPLES:
                raise ConfigurationError(f"{where}: more than {MAX_SAMPLES} samples")
    return _joined(layout, [(name, ordered(users[name])) for name in sorted(users)])


def first_input(layout: Layout) -> Any:
    """Return one input of a LEAF folder, by which its data set is recognised."""
    path = min(layout.files, key=lambda file: file.stat().st_size)
    for _, x, _ in _users(path):
        if x:
            return x[0]
    raise ConfigurationError(f"{path}: has no samples")


def _joined(layout: Layout, users: list[tuple[str, UserSamples]]) -> Records:
    if not any(len(samples.y) for _, samples in users):
        raise ConfigurationError(f"{layout.path}: has no samples")
    sizes = [len(samples.y) for _, samples in users]
    return Records(
        x=np.concatenate([samples.x for _, samples in users]),
        y=np.concatenate([samples.y for _, samples in users]),
        owner=np.repeat(np.arange(len(users)), sizes),
        owners=tuple(name for name, _ in users),
        is_test=np.concatenate([samples.is_test for _, samples in users]),
    )


class _User(BaseModel):
    model_config = ConfigDict(strict=True)
    x: list[Any]
    y: list[Any]


class _File(BaseModel):
    model_config = ConfigDict(strict=True)
    users: list[Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]]
    num_samples: list[int]
    user_data: dict[str, _User]


def _users(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield name, inputs and labels of each user of one file."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: more than {MAX_FILE_BYTES} bytes")
        document = parse_json(content.decode("utf-8-sig"), refuse_constant=_refuse)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: not a readable JSON file ({error})") from error
    try:
        file = _File.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:200] or "the file"
        raise ConfigurationError(f"{path}: {where}: {first['msg']}") from error
    if not len(file.users) == len(file.num_samples) == len(file.user_data):
        raise ConfigurationError(
            f"{path}: {len(file.users)} users, {len(file.num_samples)} num_samples, "
            f"{len(file.user_data)} user_data"
        )
    for name, count in zip(file.users, file.num_samples, strict=True):
        user = file.user_data.get(name)
        if user is None or not len(user.x) == len(user.y) == count:
            held = "none" if user is None else f"{len(user.x)} inputs and {len(user.y)} labels"
            raise ConfigurationError(
                f"{path}: {name!r}: {held} in user_data, but num_samples {count}"
            )
        yield name, user.x, user.y


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not a number")
