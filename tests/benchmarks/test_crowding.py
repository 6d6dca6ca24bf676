"""The independent script of crowded residuals: its rule, its runs, its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.crowding.__main__ import main
from benchmarks.crowding.attacks import ATTACKS
from benchmarks.crowding.rule import RULES, clipped, scores
from benchmarks.crowding.runs import Regime, play

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS, PEERS = FOLDER / "crowd.json", FOLDER / "peers.json"


def test_a_common_pull_is_crowded_and_orthogonal_updates_are_not() -> None:
    rows = np.eye(12)
    rows[8:] = rows[0]
    seen = scores("crowd", rows, np.array([2, 3]), None)
    assert seen.crowding.tolist() == [4, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4]
    assert seen.base == 1e-3
    assert seen.distances[0, 4] == 2
    assert (seen.distances[0, 8:] > 1600**4).all()


def test_with_peers_all_members_have_the_median_of_the_others() -> None:
    # Squared distances from the others: 2 and 2; 2 and 4; 2 and 4. Cosine .6 with h, so b is 1.
    rows, members = np.array([[1.0, 0], [0, 1], [0, -1], [0, 0]]), np.array([0, 1])
    seen = scores("peers", rows, members, None)
    assert seen.distances.tolist() == [[2, 3, 3, 4]] * 2
    along = scores("peers", rows, members, np.array([3.0, 4.0])).distances[0]
    assert along == pytest.approx([1.4, 1.7, 3.3, 4])
    assert scores("peers", rows[:1], members[:1], None).distances.tolist() == [[0]]


@pytest.mark.parametrize("path", [VECTORS, PEERS], ids=["crowd", "peers"])
def test_a_rule_holds_its_vectors(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--vectors", str(path)]) == 0
    assert capsys.readouterr().out == "All cases hold.\n"


def test_the_vectors_of_peers_are_those_that_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--vectors", str(VECTORS), "--answer", "peers"]) == 0
    printed = json.loads(capsys.readouterr().out)
    path = tmp_path / "peers.json"
    committed = json.loads(PEERS.read_text("utf-8"))
    # Its numbers, on the committed updates; the last digits differ between processors.
    numbers = ("b", "base", "crowding", "factor", "length", "expected")
    for case, ours in zip(printed["cases"], committed["cases"], strict=True):
        assert case.keys() == ours.keys()
        case |= {key: value for key, value in ours.items() if key in numbers}
    assert printed == committed
    path.write_text(json.dumps(committed | {"reference": "crowd"}), "utf-8")
    assert main(["--vectors", str(path)]) == 1


def test_a_changed_vector_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = json.loads(VECTORS.read_text("utf-8"))
    cases = file["cases"][:2]
    cases[1]["expected"][0][0] = (0.5).hex()
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(file | {"cases": cases}), "utf-8")
    assert main(["--vectors", str(path)]) == 1
    assert capsys.readouterr().out == f"{cases[1]['kind']}: distances\n"


def test_the_longer_are_clipped_to_the_length_of_two_fifths() -> None:
    rows = np.diag([0.0, 1.0, 2.0, 9.0, 30.0])
    assert clipped(rows).diagonal() == pytest.approx([0, 1, 1, 1, 1])
    assert not clipped(np.zeros((3, 2))).any()


@pytest.mark.parametrize("rule", RULES)
def test_a_model_learns(rule: str) -> None:
    assert play(rule, "none", 1, Regime(rounds=6)) > 0.5


def test_a_run_repeats_and_another_seed_is_another() -> None:
    first, again, other = (play("peers", "noise-30", seed, Regime(rounds=2)) for seed in (1, 1, 2))
    assert first == again != other


def test_reversed_updates_stop_an_average() -> None:
    assert play("fedavg", "ipm-5", 1, Regime(rounds=6)) < 0.3


def test_each_attack_is_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "5", "--seeds", "1", "--rules", "crowd", "--clip"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(ATTACKS)


@pytest.mark.parametrize(
    "words",
    [
        ["--seeds", "-1"],
        ["--rounds", "4"],
        ["--share", "0.6"],
        ["--rules", "krum"],
        ["--vectors", "missing.json"],
        ["--answer", "peers"],
    ],
)
def test_an_argument_out_of_range_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    last = capsys.readouterr().err.splitlines()[-1]
    assert words[0] in last
    assert words[1] in last or words[0] == "--answer"


def test_a_file_without_cases_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    empty = '{"reference": "crowd", "cases": [{"kind": "empty"}]}'
    for text in ("[]", "{}", "no JSON", '{"cases": [{}]}', empty):
        path.write_text(text, "utf-8")
        with pytest.raises(SystemExit, match="2"):
            main(["--vectors", str(path)])
        assert "--vectors" in capsys.readouterr().err
