"""Claims are judged by rows that nobody ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.__main__ import CLAIMS
from benchmarks.paper.claims import NORMAL_CLAIMS, final
from benchmarks.paper.time_claims import EFFICIENCY_CLAIMS, complexity_table, exponents
from benchmarks.paper.verdict import Claim, ClaimAnswer, ClaimFinding, Results, answer_to, is_above
from clients.experiments.rows import CellSeconds, ExperimentRows
from clients.experiments.series import Estimate
from tests.clients.experiments.made_up import cell, constant, rows

SECOND_IS_BETTER = next(
    one for one in NORMAL_CLAIMS if one.sentence == "Strategy II is more accurate than typical FL."
)


@pytest.mark.parametrize(
    ("difference", "above"),
    [
        (Estimate(0.0431, 0.01, 3), True),
        (Estimate(0.0430, 0.01, 3), None),
        (Estimate(-0.0431, 0.01, 3), False),
        (Estimate(0.5, None, 1), None),
        (Estimate(0.0204, 0.01, 31), None),
    ],
)
def test_a_difference_is_one_by_a_t_test(difference: Estimate, above: bool | None) -> None:
    assert is_above(difference) is above


def test_a_difference_is_taken_over_the_seeds_that_both_have() -> None:
    results = Results(
        {"x": rows([*constant("CMFL-I", (0.8, 0.9, 1.0)), *constant("Krum", (0.7, 0.8))])}
    )
    (place,) = results.places(1)
    found = results.difference((place, "CMFL-I"), (place, "Krum"), final)
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert found.count == 2
    assert results.difference((place, "CMFL-I"), (place, "Median"), final) is None


def _claimed(claim: Claim, **found: ExperimentRows) -> list[ClaimFinding]:
    return claim.findings(Results(found))


@pytest.mark.parametrize(
    ("second", "answer"),
    [
        ((0.9, 0.91, 0.92), ClaimAnswer.HOLDS),
        ((0.7, 0.71, 0.72), ClaimAnswer.FAILS),
        ((0.8, 0.83, 0.8), ClaimAnswer.OPEN),
        ((0.9,), ClaimAnswer.OPEN),
    ],
)
def test_a_claim_is_judged_by_its_rows(second: tuple[float, ...], answer: ClaimAnswer) -> None:
    typical = constant("FedAvg-trainers", (0.8, 0.81, 0.82))
    found = _claimed(SECOND_IS_BETTER, normal=rows([*typical, *constant("CMFL-II", second)]))
    assert answer_to(found) is answer


def test_without_rows_no_claim_is_judged() -> None:
    results = Results({})
    assert {answer_to(claim.findings(results)) for claim in CLAIMS} == {ClaimAnswer.MISSING}


def test_a_finding_is_the_method_less_the_other_whatever_is_claimed() -> None:
    # I is claimed to be the worst, and is: .5 less .8 is negative.
    worst = next(one for one in NORMAL_CLAIMS if "worst accuracy" in one.sentence)
    typical, first = constant("FedAvg-trainers", (0.8, 0.81)), constant("CMFL-I", (0.5, 0.51))
    found = _claimed(worst, normal=rows([*typical, *first]))
    assert answer_to(found) is ClaimAnswer.HOLDS
    assert found[0].numbers.startswith("CMFL-I: -0.3000 ± 0.0000 to FedAvg-trainers")
    better = constant("CMFL-I", (0.9, 0.91))
    found = _claimed(worst, normal=rows([*typical, *better]))
    assert answer_to(found) is ClaimAnswer.FAILS


def test_the_papers_own_formula_makes_cmfl_slower_than_brain_torrent() -> None:
    # (43 + 65) |w| / r a round against 65 |w| / r, with no computation to speak of.
    claim = EFFICIENCY_CLAIMS[0]
    timed = {
        "number": 4,
        "seconds": CellSeconds(wall=1.0, cpu=1.0, training=1e-6, scoring=0.0, ledger=0.0),
        "bytes": {"model": 1000, "by_round": [1000, 1000]},
        "extra": {"committee": 43, "trainers": 65},
    }
    methods = ("FedAvg-trainers", "CMFL-I", "BrainTorrent", "GossipFL")
    found = rows([one for m in methods for one in constant(m, (0.8, 0.8, 0.8), **timed)])
    held = {one.where: one.holds for one in claim.findings(Results({"e": found}))}
    assert held["e: text, 10 Mbit/s"] is False
    assert held["e: authors, 10 Mbit/s"] is True
    # A model that always answers the most frequent class has reached nothing.
    idle = replace(found, cells=tuple(replace(one, floor=0.8) for one in found.cells))
    assert {one.holds for one in claim.findings(Results({"e": idle}))} == {None}


def test_exponents_are_slopes_where_one_size_varies() -> None:
    def sized(label: str, trainers: int, model: int, seconds: float) -> list[object]:
        return [
            cell(
                "CMFL-I",
                1,
                (0.5,),
                number=4,
                axes={"size": label},
                seconds=CellSeconds(wall=1.0, cpu=1.0, scoring=seconds),
                bytes={"model": model, "phases": {"model": 4 * model}},
                extra={"committee": 4, "trainers": trainers},
            )
        ]

    # Twice as long for twice the trainers, and for four times the model.
    cells = [*sized("base", 8, 100, 1.0), *sized("n", 16, 100, 2.0), *sized("w", 8, 400, 2.0)]
    results = Results({"scaling": rows(cells)})  # type: ignore[arg-type]
    found = exponents(results, lambda one: one.seconds.scoring)
    assert found[0] == pytest.approx(1.0)
    assert found[1] is None
    assert found[2] == pytest.approx(0.5)
    assert "| scoring, seconds of all members | 1, 1, 2 | 1, 1, 1 | 1.00, –, 0.50 |" in (  # noqa: RUF001
        complexity_table(results)
    )


@given(st.lists(st.sampled_from([True, False, None])))
def test_a_verdict_never_says_more_than_its_findings(held: list[bool | None]) -> None:
    found = [ClaimFinding(f"place {number}", one, "") for number, one in enumerate(held)]
    answer = answer_to(found)
    assert (answer is ClaimAnswer.MISSING) == (not held)
    assert (answer is ClaimAnswer.HOLDS) == (bool(held) and all(held))
    assert (answer in {ClaimAnswer.HOLDS, ClaimAnswer.PARTLY}) == (True in held)
    assert answer is not ClaimAnswer.FAILS or False in held
