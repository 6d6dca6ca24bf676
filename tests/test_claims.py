"""A run's own rows: what they come to, and what is no row."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.claims import (
    MAX_ANSWERED_BYTES,
    MAX_ROW_BYTES,
    ClaimedRun,
    claimed_rounds,
    claimed_run,
    claims_of,
    is_below_floor,
    recorded_settings,
)
from ledger.io.home import RunPaths
from ledger.protocol.errors import ConfigurationError, EncodingError

ROW: dict[str, Any] = {
    "round": 1,
    "head": "0x01",
    "accuracy": 0.5,
    "floor": 0.125,
    "accepted": [4, 7, 9],
    "malicious_accepted": 1,
}


def run_with(path: Path, *lines: dict[str, Any] | bytes) -> RunPaths:
    """Return a run with these rows."""
    text = [line if isinstance(line, bytes) else f"{json.dumps(line)}\n".encode() for line in lines]
    (path / "metrics.jsonl").write_bytes(b"".join(text))
    return RunPaths(path)


def test_a_run_result_is_last_accuracy_and_accepted_updates(
    tmp_path: Path,
) -> None:
    # 3 + 1 accepted, 1 + 1 of them from attackers; the third round was abandoned, unmeasured.
    rows = (
        ROW,
        ROW | {"round": 2, "accuracy": 0.75, "accepted": [4], "head": "0x02"},
        ROW | {"round": 4, "accuracy": None, "accepted": [], "malicious_accepted": 0},
    )
    found = claimed_run(run_with(tmp_path, *rows))
    assert found == ClaimedRun(3, "0x01", 0.75, 0.125, 0.5, 4)


def test_a_run_without_rows_claims_nothing(tmp_path: Path) -> None:
    nothing = ClaimedRun(0, None, None, None, None, None)
    assert claimed_run(RunPaths(tmp_path)) == nothing
    assert claimed_run(run_with(tmp_path, json.dumps(ROW).encode())) == nothing


def test_below_the_floor_is_strictly_below() -> None:
    assert is_below_floor(0.1249, 0.125)
    assert not is_below_floor(0.125, 0.125)
    assert not is_below_floor(None, 0.125)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{\n", "line 2 is not JSON"),
        (b"\xff\n", "line 2 is not JSON"),
        (b"[" * 5_000 + b"\n", "line 2 is not JSON"),
        (b"[1]\n", "line 2 is not a row of metrics"),
        (ROW | {"round": 0}, "line 2: round 0 comes after round 1"),
        (ROW | {"round": True}, "line 2: round = True must be a whole number"),
        (ROW | {"round": 2, "accuracy": 1.5}, "line 2: accuracy = 1.5 must be a number in [0, 1]"),
        (ROW | {"round": 2, "floor": None}, "line 2: floor = None must be a number in [0, 1]"),
        (ROW | {"round": 2, "floor": float("nan")}, "line 2: floor = nan must be"),
        (ROW | {"round": 2, "loss": -0.5}, "line 2: loss = -0.5 must be a finite number"),
        (ROW | {"round": 2, "loss": float("inf")}, "line 2: loss = inf must be a finite"),
        (ROW | {"round": 2, "loss": 10**400}, "must be a finite number, at least 0"),
        (ROW | {"round": 2, "accepted": [1]} | {"malicious_accepted": 2}, "malicious_accepted = 2"),
        (ROW | {"round": 2, "accepted": 3}, "of the accepted, which must be a list"),
        (b"x" * (MAX_ROW_BYTES + 1) + b"\n", f"line 2 is over {MAX_ROW_BYTES} bytes"),
    ],
)
def test_what_is_no_row_is_refused_by_its_line(
    tmp_path: Path, line: dict[str, Any] | bytes, said: str
) -> None:
    with pytest.raises(EncodingError) as refused:
        claimed_run(run_with(tmp_path, ROW, line))
    assert said in str(refused.value)
    assert str(tmp_path / "metrics.jsonl") in str(refused.value)


def test_doubled_rows_are_reported_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second, third = ROW | {"round": 2}, ROW | {"round": 3}
    paths = run_with(tmp_path, ROW, second, third, second | {"accuracy": 0.0}, ROW)
    assert [(row.round, row.accuracy) for row in claimed_rounds(paths)] == [
        (number, ROW["accuracy"]) for number in (1, 2, 3)
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"{paths.metrics}: more than one row of round 1, 2; only the first row of a round counts"
    ]


def test_a_pipe_in_place_of_the_rows_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(OSError, match="is not a file, but a folder, a pipe or a device"):
        claimed_run(RunPaths(tmp_path))


def test_an_answer_has_only_requested_rows_and_bounded_files(
    tmp_path: Path,
) -> None:
    later = ROW | {"round": 7, "accuracy": 0.25}
    paths = run_with(tmp_path, ROW, later)
    found = claims_of(paths, {2, 7, 9})
    assert {number: row.accuracy for number, row in found.items()} == {7: 0.25}
    os.truncate(paths.metrics, MAX_ANSWERED_BYTES + 1)
    with pytest.raises(EncodingError, match=f"has {MAX_ANSWERED_BYTES + 1} bytes, more than"):
        claims_of(paths, {7})
    assert next(claimed_rounds(paths)).round == 1, "whoever has the time may read all of it"
    for device in ("/dev/zero", "/dev/stdin"):
        paths.metrics.unlink()
        paths.metrics.symlink_to(device)
        with pytest.raises(OSError, match=r"it is not a file|No such device"):
            claims_of(paths, {7})


DAMAGED = st.dictionaries(st.sampled_from(list(ROW)), st.none() | st.integers() | st.floats()).map(
    lambda values: f"{json.dumps(ROW | values)}\n".encode()
)


@given(data=st.binary(max_size=200) | DAMAGED)
def test_any_bytes_are_rows_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    paths = run_with(tmp_path_factory.getbasetemp(), data)
    with suppress(EncodingError):
        assert len(list(claimed_rounds(paths))) <= data.count(b"\n")


def test_settings_are_flat_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.configuration.write_text('seed = 1\n[malice.members]\nsilent = 2\n[data]\nname = "x"\n')
    assert recorded_settings(paths) == {
        "data.name": '"x"',
        "malice.members.silent": "2",
        "seed": "1",
    }
    paths.configuration.write_text("seed =")
    with pytest.raises(ConfigurationError, match=r"config.toml: not TOML"):
        recorded_settings(paths)
