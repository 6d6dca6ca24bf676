"""What the report says of rows that nobody ran."""

from __future__ import annotations

from dataclasses import replace

from clients.experiments.catalogue import definition_named
from clients.experiments.report import captured_share, report, sections, tables
from clients.experiments.rows import ChoiceRow, ExperimentRows, sorted_rows
from tests.clients.experiments.made_up import EVIDENCE, cell, constant, rows


def test_a_table_cell_is_mean_and_error_over_seeds() -> None:
    # .8, .9, 1.0: mean .9, deviation .1, over the root of 3.
    lines = tables([*constant("CMFL-I", (0.8, 0.9, 1.0)), *constant("Krum", (0.5, 0.5))])
    assert lines[2:5] == [
        "|  | CMFL-I | Krum |",
        "| --- | --- | --- |",
        "| clean | 0.900 ± 0.058 | 0.500 ± 0.000 (2 of 3 seeds) |",
    ]


def test_an_unrun_cell_is_a_dash_and_one_seed_errorless() -> None:
    lines = tables(
        [
            cell("CMFL-I", 1, (0.8,)),
            cell("Krum", 1, (0.7,), condition="ipm-10"),
            cell("Median", 1, (None,), condition="ipm-10"),
        ]
    )
    assert lines[2:8] == [
        "|  | CMFL-I | Krum |",
        "| --- | --- | --- |",
        "| clean | 0.800 | – |",  # noqa: RUF001
        "| ipm-10 | – | 0.700 |",  # noqa: RUF001
        "",
        "Without a number: Median.",
    ]


def test_a_captured_committee_is_told_by_its_worst_round() -> None:
    # Of 4 members 1 and 3 are malicious: three quarters; a server has no committee.
    held = cell("robust", 1, (0.8, 0.8), malicious_members=(1, 3), extra={"committee": 4})
    assert captured_share(held) == 0.75
    assert captured_share(cell("FedAvg", 1, (0.8,))) is None
    calm = cell("robust", 2, (0.8, 0.8), malicious_members=(0, 0), extra={"committee": 4})
    assert "| clean | 0.375 ± 0.375 |" in tables([held, calm])


def test_a_report_tells_all_and_is_the_same_each_time() -> None:
    cells = [*constant("CMFL-I", (0.8, 0.9, 1.0), ledger=EVIDENCE)]
    choice = ChoiceRow(
        experiment="normal-sent140",
        method="CMFL-I",
        factor=0.5,
        finals={"0.5": 0.8, "1": 0.7},
        seeds=(100, 101),
        digest="0x00",
    )
    found = {
        "normal-sent140": ExperimentRows(
            tuple(cells), (), (choice,), definition_named("normal-sent140")
        ),
        "empty": ExperimentRows(),
    }
    text = report(found)
    assert text == report(found)
    assert "## 1. Normal training, Sentiment140: `normal-sent140`" in text
    assert "| clean | 0.900 ± 0.058 |" in text
    assert (
        "| normal-sent140 | CMFL-I | 0.5 (smallest tried) | 0.1 | 2 | 0.5: 0.800, 1: 0.700 |"
        in text
    )
    assert EVIDENCE.head in text
    assert "| 1 | normal-sent140 | 3 | 0 | 3 of 3 | 1.5 |" in text
    assert "empty" not in text


def test_a_section_shows_the_figures_of_its_experiment() -> None:
    found = {name: rows(constant("CMFL-I", (0.8,))) for name in ("normal", "normal-sent140")}
    lines = sections(found, ["f/normal-sent140-curves.svg", "f/normal-curves.svg"])
    shown = [line for line in lines if line.startswith("!")]
    assert shown == [f"![{name}-curves](f/{name}-curves.svg)" for name in found]


def test_rows_are_told_in_the_order_of_their_definition() -> None:
    # As they ended: the second method first, the later seed first.
    ended = [
        cell("CMFL-I", 201, (0.8,)),
        cell("FedAvg-trainers", 201, (0.7,)),
        cell("unheard-of", 200, (0.6,)),
        cell("CMFL-I", 200, (0.8,)),
    ]
    known = replace(rows(ended), definition=definition_named("normal"))
    ordered = sorted_rows({"normal": known, "none": ExperimentRows()})
    assert [(one.method, one.seed) for one in ordered["normal"].cells] == [
        ("FedAvg-trainers", 201),
        ("CMFL-I", 200),
        ("CMFL-I", 201),
        ("unheard-of", 200),
    ]
    assert report({"normal": rows(ended)}) == report({"normal": rows(reversed(ended))})
