"""Verification of a data set's files, and what they contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clients.datasets.data_set import DataSet
from clients.datasets.federated_data import (
    NO_TARGET,
    Records,
    Samples,
    parse_settings,
    require_trained,
)
from clients.datasets.own import OWN, OwnOptions, read_own
from clients.datasets.registry import data_set_named, recognise
from ledger.protocol.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class DataContents:
    """Contents of valid files.

    Attributes:
        train: training samples by the files' own split; None without one.
        clients: number of natural clients; None without any.
        shape: of one sample in the files; empty for a text.
        per_class: number of samples by label, labels ascending; those that do not occur are left
            out. Of a class for each token it counts tokens; empty where nothing is classified.
        features: columns or array of the inputs of own data; None of another data set.
        outputs: number of outputs that a model gets; None where the check does not compute it.
        about: sentences about features, labels and clients of own data.
        notes: sentences about what may be another thing than the user meant.
    """

    dataset: str
    samples: int
    train: int | None
    test: int | None
    clients: int | None
    shape: tuple[int, ...]
    per_class: dict[int, int]
    features: tuple[str, ...] | None = None
    outputs: int | None = None
    about: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def verify_files(
    path: Path,
    name: str | None = None,
    glove: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> DataContents:
    """Verify files as a run with all their natural clients would; return what they contain.

    The data set is recognised from the files if it is not named; of `own` it is one owner's file.
    """
    data_set = data_set_named(name) if name else recognise(path, settings)
    if data_set is OWN:
        if glove is not None:
            raise ConfigurationError(f"--glove {glove}: data set 'own' has no word vectors")
        form = parse_settings(OwnOptions, settings or {}, "data.options")
        contents = _contents(data_set, _own_records(path, form))
        outputs = (f"{form.outputs} model outputs",)
        return replace(contents, outputs=form.outputs, about=outputs)
    options = parse_settings(data_set.options, settings, "data.options") if settings else None
    records = data_set.records(path, options)
    _require_split(path, data_set, records)
    if glove is not None:
        with_glove = {**(settings or {}), "glove": str(glove)}
        options = parse_settings(data_set.options, with_glove, "data.options")
        data_set.pool(records, options, np.random.default_rng(0))
    return _contents(data_set, records)


def _own_records(path: Path, options: OwnOptions) -> Records:
    train, test = read_own(path, options)
    parts: list[Samples] = [train] if test is None else [train, test]
    is_test = np.repeat([False, True], [len(train.y), 0 if test is None else len(test.y)])
    return Records(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        is_test=is_test,
    )


def _contents(data_set: DataSet, records: Records) -> DataContents:
    test = None if records.is_test is None else int(records.is_test.sum())
    is_classified = records.y.dtype.kind != "f"
    y = records.y[records.y != NO_TARGET] if is_classified else records.y[:0]
    labels, counts = np.unique(y, return_counts=True)
    reading = records.reading
    return DataContents(
        dataset=data_set.name,
        samples=len(records.y),
        train=None if test is None else len(records.y) - test,
        test=test,
        clients=None if records.owner is None else len(records.owners),
        shape=tuple(records.x.shape[1:]),
        per_class=dict(zip(labels.tolist(), counts.tolist(), strict=True)),
        features=reading.features if reading else None,
        outputs=reading.outputs if reading else None,
        about=reading.lines if reading else (),
        notes=reading.notes if reading else (),
    )


def _require_split(path: Path, data_set: DataSet, records: Records) -> None:
    if records.is_test is None:
        return
    if records.owner is not None:
        trained = records.owner[~records.is_test]
        counts = np.bincount(trained, minlength=len(records.owners))
        require_trained(counts, records.owners, data_set.owned_by or "clients", str(path))
    if not records.is_test.any():
        raise ConfigurationError(f"{path}: has no test samples")
