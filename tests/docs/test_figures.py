"""Figures of README and docs come from result files, and people do not type new ones."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import pytest

from benchmarks.figures import MARKED, PageError, all_figures, filled, pages
from benchmarks.harness import MEASURED, ROOT
from clients.experiments.cells import row_of, task_of
from clients.experiments.kinds import kind_named
from clients.training.engine_factory import environment_here
from cmfl.commands.demo import ATTACKED, cells_of
from tests.faults import times

FIGURE = re.compile(
    r"""±\ ?\d
    | (?<![\w.,-])[+-]?0?\.\d{2,}(?![\w.]*\.\d)                  # a share or an accuracy
    | (?<![\w.])\d[\d,.]*(?:\ [kM])?\ gas\b
    | (?<![\w.])\d+\.\d+\ ?(?:s|seconds|[kMGT]i?B)\b
    | (?<![\w.])\d[\d.]*\ (?:[mn\xb5]s|minutes|hours|CPU)\b
    | \b(?:takes?|took|costs?)\ (?:about\ )?\d[\d,.]*\ ?(?:s|seconds|[kMGT]i?B)\b
    | (?<![\w.])\d[\d.]*\ times\ (?:as|faster|slower|fewer|less|more|larger|smaller)\b
    """,
    re.VERBOSE,
)
"""What looks like a measurement. Whole seconds and bytes are mostly limits and settings."""

NOT_PROSE = (
    MARKED,
    re.compile(r"<!-- begin of the table -->.*?<!-- end of the table -->", re.DOTALL),
    re.compile(r"^ *(```+).*?^ *\1$", re.DOTALL | re.MULTILINE),
    re.compile(r"`[^`\n]*`"),
    re.compile(r"\]\([^)]*\)"),
)
"""What may hold digits: figures with their comments, dated tables, code and links."""

TYPED = {
    "docs/explanation/comparison.md": "72 times as; 18 hours",
    "docs/project/decisions/protocol.md": "0.028; 0.05",
    "docs/project/faults.md": "0.2 s",
    "docs/reference/protocol/example.md": "0.25",
    "docs/reference/protocol/rules.md": "0.001",
}
"""Figures in the prose of each page that are no measurements of ours, or that no command prints
yet. Remove what a page no longer has; bind a new measurement to a result file instead of adding."""


def typed_figures(text: str) -> list[str]:
    """Return what looks like a measured figure and was typed."""
    for pattern in NOT_PROSE:
        text = pattern.sub(" ", text)
    return [match[0] for match in FIGURE.finditer(text)]


def test_figures_are_what_their_result_files_have() -> None:
    texts = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in pages()}
    figures = all_figures()
    assert [name for name, text in texts.items() if text != filled(text, figures)] == [], (
        "run: python -m benchmarks.figures"
    )


def test_no_new_figure_is_typed() -> None:
    found = {
        str(page.relative_to(ROOT)): typed_figures(page.read_text("utf-8")) for page in pages()
    }
    assert {name: "; ".join(figures) for name, figures in found.items() if figures} == TYPED


@pytest.mark.parametrize("method", ["I", "II", "III"][: times(1, 3)])
def test_the_first_attacked_runs_of_the_demo_still_have_their_results(method: str) -> None:
    results = json.loads((MEASURED / "demo.json").read_bytes())
    cells = {c.method.name: c for c in cells_of(0, rounds=40).values() if c.condition == ATTACKED}
    task = task_of(cells[method], lambda *_: None)
    played = kind_named(cells[method].method.kind).play(task)
    row = row_of(cells[method], played, task.stopwatch.seconds(is_committee=True), evidence=None)
    recorded = results["methods"][f"CMFL, strategy {method}"]
    found = (row.final, row.malicious_accepted)
    expected = (recorded["attacked"][0], recorded["accepted attackers"][0])
    # Other processors and builds of torch round otherwise, so that other updates may be accepted.
    is_same = results["environment"] == asdict(environment_here("lockstep", "cpu"))
    assert found == (expected if is_same else pytest.approx(expected, abs=0.1)), "run: make figures"


def test_every_figure_is_shown_on_some_page() -> None:
    shown = {match["name"] for page in pages() for match in MARKED.finditer(page.read_text())}
    assert shown == set(all_figures())


def test_a_changed_figure_is_replaced() -> None:
    page = "costs <!-- figure: gas -->1<!-- /figure --> gas"
    assert filled(page, {"gas": "2"}) == page.replace(">1<", ">2<")
    table = "<!-- figure: t -->\n| old |\n<!-- /figure -->\n"
    assert filled(table, {"t": "| a |\n| b |"}) == (
        "<!-- figure: t -->\n\n| a |\n| b |\n\n<!-- /figure -->\n"
    )


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("a <!-- figure: gas -->1<!-- /figure -->", "figure gas: unknown"),
        ("a <!-- figure: x -->1", "without its two comments"),
        ("a 1<!-- /figure -->", "without its two comments"),
        ("a <!-- figure x -->1<!-- /figure -->", "without its two comments"),
        ("a <!-- figure: x -->1 <!-- figure: x -->2<!-- /figure -->", "before the next figure"),
        ("a\n<!-- figure: x -->1<!-- /figure -->", "a word must come first"),
    ],
)
def test_a_wrong_comment_is_rejected(page: str, message: str) -> None:
    with pytest.raises(PageError, match=message):
        filled(page, {"x": "1"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("left .58 of 0.947, 0.92 ± 0.1", [".58", "0.947", "0.92", "± 0"]),
        ("takes 4.1 M gas, 29 ms, 2.1 MB", ["4.1 M gas", "29 ms", "2.1 MB"]),
        ("3 times as long, it took about 70 s", ["3 times as", "took about 70 s"]),
        ("`rate = 0.05` for 10 s, 0.4.3, [a](b-0.55)", []),
        ("```\n0.947\n```\n", []),
        ("a <!-- figure: x -->0.95<!-- /figure -->", []),
    ],
)
def test_a_typed_figure_is_found(text: str, found: list[str]) -> None:
    assert typed_figures(text) == found
