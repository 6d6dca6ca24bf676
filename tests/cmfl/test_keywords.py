"""Settings as keyword arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.configuration.parsing import SYNONYMS
from cmfl.simulating import apply_keywords, full_name
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Beacon


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("malicious_rate", "malice.malicious_rate"),
        ("rounds", "protocol.rounds"),
        ("seed", "seed"),
        ("data.options.test_share", "data.options.test_share"),
    ],
)
def test_a_name_is_found_by_its_last_part_or_whole(name: str, meant: str) -> None:
    assert full_name(name) == meant


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("stratgy", "protocol.strategy"),
        ("protocol.stratgy", "protocol.strategy"),
        ("epochs", "training.local_epochs"),
        ("lr", "training.learning_rate"),
        ("epsilon", "malice.malicious_rate"),
        ("alpha", "protocol.aggregation_rate, data.partition.alpha"),
        ("rate", "protocol.active_rate, .*, training.learning_rate, malice.malicious_rate"),
    ],
)
def test_an_unknown_name_is_refused_with_those_that_it_may_mean(name: str, near: str) -> None:
    refusal = rf"^{name}: there is no such setting; near it: {near} \(cmfl settings lists all\)$"
    with pytest.raises(ConfigurationError, match=refusal):
        full_name(name)
    with pytest.raises(ConfigurationError, match=refusal):
        load("smoke", settings=(f"{name}=1",))
    assert [full_name(each) for each in SYNONYMS.get(name, [])] == SYNONYMS.get(name, [])


def test_a_name_of_several_settings_is_refused_with_all_of_them() -> None:
    with pytest.raises(ConfigurationError, match=r"path is .* data\.path, training\.path; w"):
        full_name("path")


def test_values_become_those_of_toml_and_none_takes_back() -> None:
    values: dict[str, Any] = {"protocol": {"quorum": "bft"}}
    apply_keywords(
        values,
        {
            "seed": np.int64(3),
            "malicious_rate": np.float32(0.5),
            "beacon": Beacon.BLOCK,
            "data.path": Path("x"),
            "protocol": {"rounds": 4},
            "quorum": None,
            "malice.members": {"silent": np.int32(1)},
        },
    )
    assert values == {
        "seed": 3,
        "malice": {"malicious_rate": 0.5, "members": {"silent": 1}},
        "protocol": {"beacon": "block", "rounds": 4},
        "data": {"path": "x"},
    }
    assert type(values["seed"]) is int


def test_a_section_takes_a_table_alone() -> None:
    with pytest.raises(ConfigurationError, match="protocol is a section of settings"):
        apply_keywords({}, {"protocol": 3})
