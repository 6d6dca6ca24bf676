"""Claims are judged by rows that nobody ran."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper import complexity
from benchmarks.paper.claims import committee, efficiency, grids, normal, robustness, theorem
from benchmarks.paper.paper_report import CLAIMS
from benchmarks.paper.scenarios import Results, Side, final, side_of
from benchmarks.paper.verdict import Claim, ClaimAnswer, ClaimFinding, ClaimVerdict, verdict_of
from clients.experiments.rows import CellRow, CellSeconds, ExperimentRows
from clients.experiments.statistics import Estimate
from tests.clients.experiments.made_up import cell, constant, rows

SECOND_IS_BETTER = next(
    one for one in normal.CLAIMS if one.sentence == "Strategy II is more accurate than typical FL."
)


@pytest.mark.parametrize(
    ("difference", "side"),
    [
        # Student's t of two degrees is 4.303.
        (Estimate(0.0431, 0.01, 3), Side.ABOVE),
        (Estimate(0.0430, 0.01, 3), Side.EVEN),
        (Estimate(-0.0431, 0.01, 3), Side.BELOW),
        (Estimate(0.5, None, 1), Side.ALONE),
        (Estimate(0.5, 0.0, 2), Side.ABOVE),
        (Estimate(0.0, 0.0, 2), Side.EVEN),
        # Of 11, 30 and 99 degrees: 2.201, 2.042 and 1.984.
        (Estimate(0.0219, 0.01, 12), Side.EVEN),
        (Estimate(0.0221, 0.01, 12), Side.ABOVE),
        (Estimate(0.0204, 0.01, 31), Side.EVEN),
        (Estimate(0.02, 0.01, 100), Side.ABOVE),
    ],
)
def test_a_difference_is_one_by_a_t_test(difference: Estimate, side: Side) -> None:
    assert side_of(difference) is side


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


def _claimed(claim: Claim, **found: ExperimentRows) -> ClaimVerdict:
    return claim.verdict(Results(found))


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
    verdict = _claimed(SECOND_IS_BETTER, normal=rows([*typical, *constant("CMFL-II", second)]))
    assert verdict.answer is answer


def test_an_undecidable_claim_is_not_said_to_hold() -> None:
    findings = [ClaimFinding("a", True, ""), ClaimFinding("b", None, "")]
    assert verdict_of(findings).sentence == "holds only with a (1 of 2 cannot tell)"
    assert verdict_of([ClaimFinding("a", None, "")]).answer is ClaimAnswer.OPEN
    findings = [ClaimFinding("a", False, ""), ClaimFinding("b", None, "")]
    assert verdict_of(findings).sentence == "does not hold (0 of 2; 1 cannot tell)"


def test_without_rows_no_claim_is_judged() -> None:
    results = Results({})
    assert {claim.verdict(results).answer for claim in CLAIMS} == {ClaimAnswer.MISSING}


def test_no_two_claims_are_called_the_same() -> None:
    assert len({(claim.source, claim.sentence) for claim in CLAIMS}) == len(CLAIMS)


def test_the_best_has_to_be_above_every_other() -> None:
    best = robustness.CLAIMS[0]
    under = {"number": 2, "condition": "same-value-10"}
    first = constant("CMFL-I", (0.8, 0.81, 0.82), **under)
    worse = constant("Krum", (0.5, 0.51, 0.52), **under)
    better = constant("Median", (0.85, 0.86, 0.87), **under)
    assert _claimed(best, robustness=rows([*first, *worse])).answer is ClaimAnswer.HOLDS
    assert _claimed(best, robustness=rows([*first, *worse, *better])).answer is ClaimAnswer.FAILS


def test_a_finding_is_the_method_less_the_other_whatever_is_claimed() -> None:
    # I is claimed to be the worst, and is: .5 less .8 is negative.
    worst = next(one for one in normal.CLAIMS if "worst accuracy" in one.sentence)
    typical, first = constant("FedAvg-trainers", (0.8, 0.81)), constant("CMFL-I", (0.5, 0.51))
    verdict = _claimed(worst, normal=rows([*typical, *first]))
    assert verdict.answer is ClaimAnswer.HOLDS
    assert verdict.findings[0].numbers.startswith("CMFL-I: -0.3000 ± 0.0000 to FedAvg-trainers")
    better = constant("CMFL-I", (0.9, 0.91))
    assert _claimed(worst, normal=rows([*typical, *better])).answer is ClaimAnswer.FAILS


def test_malicious_members_are_compared_with_malicious_trainers() -> None:
    claim = next(one for one in committee.CLAIMS if "a few" in one.sentence.lower())
    attack = {"number": 5, "axes": {"epsilon": "10"}, "condition": "back-gradient"}
    both = constant("CMFL-I", (0.8, 0.81, 0.82), **attack)
    alone = constant(
        "CMFL-I", (0.85, 0.86, 0.87), **attack | {"condition": "back-gradient, trainers only"}
    )
    verdict = _claimed(claim, x=rows([*both, *alone]))
    assert verdict.answer is ClaimAnswer.FAILS
    assert verdict.findings[0].numbers.startswith("-0.0500")
    # Clean training beside attackers that do both says nothing of members.
    calm = constant("CMFL-I", (0.9, 0.9, 0.9), **attack | {"axes": {"epsilon": "0"}})
    assert _claimed(claim, x=rows([*both, *calm])).answer is ClaimAnswer.MISSING


def test_an_attack_is_compared_with_the_same_experiment_without_it() -> None:
    withstands = next(one for one in robustness.CLAIMS if "withstands" in one.sentence)
    clean = constant("CMFL-I", (0.9, 0.9, 0.9), number=2)
    kept = constant("CMFL-I", (0.885, 0.886, 0.885), number=2, condition="same-value-10")
    lost = constant("CMFL-I", (0.85, 0.851, 0.85), number=2, condition="same-value-10")
    assert _claimed(withstands, x=rows([*clean, *kept])).answer is ClaimAnswer.HOLDS
    assert _claimed(withstands, x=rows([*clean, *lost])).answer is ClaimAnswer.FAILS
    assert _claimed(withstands, x=rows(kept)).answer is ClaimAnswer.MISSING


def test_a_cliff_is_looked_for_along_its_axis() -> None:
    cliff = next(one for one in grids.CLAIMS if "epsilon leads" in one.sentence)

    def at(epsilon: str, finals: tuple[float, ...]) -> list[object]:
        axes = {"omega": "40", "epsilon": epsilon}
        return list(constant("CMFL-I", finals, number=3, condition="back-gradient", axes=axes))

    low, high = at("10", (0.9, 0.91, 0.9)), at("50", (0.2, 0.1, 0.15))
    verdict = _claimed(cliff, grid=rows([*low, *high]))  # type: ignore[list-item]
    assert verdict.sentence == "holds (1 of 1)"
    assert verdict.findings[0].where == "grid: epsilon 10 to 50, omega = 40"


def test_the_papers_own_formula_makes_cmfl_slower_than_brain_torrent() -> None:
    # (43 + 65) |w| / r a round against 65 |w| / r, with no computation to speak of.
    claim = efficiency.CLAIMS[0]
    timed = {
        "number": 4,
        "seconds": CellSeconds(wall=1.0, cpu=1.0, training=1e-6, scoring=0.0, ledger=0.0),
        "bytes": {"model": 1000, "by_round": [1000, 1000]},
        "extra": {"committee": 43, "trainers": 65},
    }
    methods = ("FedAvg-trainers", "CMFL-I", "BrainTorrent", "GossipFL")
    found = rows([one for m in methods for one in constant(m, (0.8, 0.8, 0.8), **timed)])
    held = {one.where: one.holds for one in claim.verdict(Results({"e": found})).findings}
    assert held["e: text, 10 Mbit/s"] is False
    assert held["e: authors, 10 Mbit/s"] is True


def test_times_that_overlap_or_are_of_one_seed_decide_nothing() -> None:
    def answers(mine: tuple[float, ...]) -> set[bool | None]:
        cells = []
        # The goal is .9 of .8; whoever has it after the first round is there sooner.
        others = dict.fromkeys(("FedAvg-trainers", "BrainTorrent", "GossipFL"), (0.1, 0.8))
        for method, ends in others.items():
            cells += [_timed(method, seed, (0.8, 0.8), ends[1]) for seed in range(len(mine))]
        cells += [_timed("CMFL-I", seed, (0.8, 0.8), one) for seed, one in enumerate(mine)]
        verdict = efficiency.CLAIMS[0].verdict(Results({"e": rows(cells)}))
        return {one.holds for one in verdict.findings if "counted, 100 " in one.where}

    assert answers((0.1, 0.1)) == {True}
    assert answers((0.9, 0.9)) == {False}
    assert answers((0.1, 0.9)) == {None}
    assert answers((0.1,)) == {None}


def _timed(method: str, seed: int, accuracy: tuple[float, ...], scoring: float) -> CellRow:
    return cell(
        method,
        seed,
        accuracy,
        number=4,
        seconds=CellSeconds(wall=1.0, cpu=1.0, training=1e-9, scoring=scoring),
        bytes={"model": 1, "by_round": [1, 1]},
        extra={"committee": 1, "trainers": 1, "participants": 1},
    )


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
    found = complexity.exponents(results, lambda one: one.seconds.scoring)
    assert found[0] == pytest.approx(1.0)
    assert found[1] is None
    assert found[2] == pytest.approx(0.5)
    assert "| scoring, seconds of all members | 1, 1, 2 | 1, 1, 1 | 1.00, –, 0.50 |" in (  # noqa: RUF001
        complexity.table(results)
    )


def test_of_indistinguishable_gaps_neither_promises_less_error() -> None:
    claim = theorem.CLAIMS[-1]

    def answer(gaps: tuple[float, ...]) -> ClaimAnswer:
        told = [("FedAvg", seed, 0.5, 0.1 + seed / 100) for seed in range(3)]
        told += [("CMFL-I", seed, gap, 0.3) for seed, gap in enumerate(gaps)]
        found = rows(
            cell(
                method,
                seed,
                (0.5,),
                number=6,
                extra={
                    "theorem": {
                        "step_sizes": {
                            "theorem": {"constants": {"least_gap": gap}, "error": [error]}
                        }
                    }
                },
            )
            for method, seed, gap, error in told
        )
        return claim.verdict(Results({"theorem": found})).answer

    assert answer((0.1, 0.11, 0.12)) is ClaimAnswer.HOLDS
    assert answer((0.8, 0.81, 0.82)) is ClaimAnswer.FAILS
    assert answer((0.1, 0.51, 0.8)) is ClaimAnswer.OPEN


@given(st.lists(st.sampled_from([True, False, None])))
def test_a_verdict_never_says_more_than_its_findings(held: list[bool | None]) -> None:
    found = [ClaimFinding(f"place {number}", one, "") for number, one in enumerate(held)]
    answer = verdict_of(found).answer
    assert (answer is ClaimAnswer.MISSING) == (not held)
    assert (answer is ClaimAnswer.HOLDS) == (bool(held) and all(held))
    assert (answer in {ClaimAnswer.HOLDS, ClaimAnswer.PARTLY}) == (True in held)
    assert answer is not ClaimAnswer.FAILS or False in held
