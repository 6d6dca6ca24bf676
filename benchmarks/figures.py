"""Figures of README and docs: commands write them into result files, and this module into pages.

    python -m benchmarks.figures           write each figure into the pages that name it
    python -m benchmarks.figures --check   list the pages that differ, and exit with 1

A page names a figure in comments: `<!-- figure: gas.deployment -->1<!-- /figure -->`. A table
stands between its comments, on lines of its own. `make figures` first runs the commands that write
the result files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.harness import MEASURED, ROOT
from clients.experiments.definition import names
from clients.experiments.report import format_estimate, markdown
from cmfl.commands.demo import RESULT_COLUMNS

PEERS = {
    "ours": ("ours", "ours, chain"),
    "plain loop": ("plain loop", "plain loop, naive scores, no ledger"),
    "pfl 0.6.0": ("pfl, 2 processes",),
    "Flower 1.41.0": ("Flower, 2 actors",),
}
"""Names of the contenders in rounds.json, by their column."""

WORKS = {
    "W1L": "LEAF's CNN, d = 6.6 M, 100 clients, 10 steps of 10",
    "W1S": "LEAF's CNN, d = 1.7 M",
    "W2": "LEAF's LSTM, d = 133 k, 14 clients, 20 steps of 10",
    "W3": "softmax 784 to 62, 100 clients, 10 steps of 10",
    "CMFL": "CMFL, d = 6.6 M, 40 members, 60 trainers (plain loop: naive scores, no ledger)",
}
GPU_WORKS = {
    "W1L": "LEAF's CNN, d = 6.6 M, 100 clients, lockstep",
    "W1S": "LEAF's CNN, d = 1.7 M, 100 clients, lockstep",
    "W2": "LEAF's LSTM, d = 133 k, 14 clients, plain",
    "LoRA": "LoRA on GPT-2's shape, d = 295 k, 20 clients, plain",
}

_OPEN, _CLOSE = r"<!-- figure: (?P<name>\S+) -->", "<!-- /figure -->"
MARKED = re.compile(rf"{_OPEN}(?P<value>.*?){_CLOSE}", re.DOTALL)
_COMMENT = re.compile(r"<!-- /?figure\b")


class PageError(ValueError):
    """A page names an unknown figure, or its comments do not match."""


def pages() -> list[Path]:
    """Return the pages that may name figures: not those that a command writes whole."""
    results = ROOT / "docs" / "results"
    generated = {results / f"{name}.md" for name in ("claims", *names())}
    generated.add(ROOT / "docs" / "project" / "mutants.md")
    listed = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in listed if page not in generated]


def filled(text: str, figures: Mapping[str, str]) -> str:
    """Return a page's text with every named figure as its result file has it."""
    for match in MARKED.finditer(text):
        if len(_COMMENT.findall(match[0])) != 2:
            raise PageError(f"figure {match['name']}: add {_CLOSE} before the next figure")
        if match["name"] not in figures:
            raise PageError(f"figure {match['name']}: unknown; known are {sorted(figures)}")
    if len(_COMMENT.findall(text)) != 2 * len(MARKED.findall(text)):
        raise PageError(f"a figure without its two comments, {_OPEN} and {_CLOSE}")

    def written(match: re.Match[str]) -> str:
        value = figures[match["name"]]
        if "\n" in value:
            value = f"\n\n{value}\n\n"
        elif text[: match.start()].endswith("\n"):
            raise PageError(
                f"figure {match['name']}: a word must come first on its line, because Markdown "
                "ends a paragraph at a comment that starts a line"
            )
        return f"<!-- figure: {match['name']} -->{value}{_CLOSE}"

    return MARKED.sub(written, text)


@cache
def all_figures() -> dict[str, str]:
    """Return every figure by its name, as text of a page."""
    return {
        "aggregators": "\n".join(_result("aggregators.json")["table"]),
        "committee-faults": "\n".join(_result("committee_faults.json")["table"]),
        "sender-choice": "\n".join(_result("sender_choice.json")["table"]),
        "captured.table": "\n".join(_result("captured_committees.json")["table"]),
        "captured.preset": _result("captured_committees.json")["preset"],
        **{name: "\n".join(lines) for name, lines in _result("science.json").items()},
        "service.answers": "\n".join(_result("service.json")["table"]),
        "service.machine": _machine(_result("service.json")["machine"]),
        **_demo(),
        **_gas(),
        **_engine(),
    }


def _demo() -> dict[str, str]:
    results = _result("demo.json")
    rows = [
        [method, *(format_estimate(values[column]) for column in RESULT_COLUMNS)]
        for method, values in results["methods"].items()
    ]
    first = _result("first_demo.json")
    return {
        "demo.table": "\n".join(markdown(("method", *RESULT_COLUMNS), rows)),
        "demo.most-frequent-class": f"{results['most frequent class']:.3f}",
        "install.minutes": f"{first['installation minutes']} minutes",
        "install.disk": f"{first['installation GB']} GB",
        "demo.minutes": f"{first['demo minutes']} minutes",
    }


def _gas() -> dict[str, str]:
    snapshot = json.loads((ROOT / "contracts" / "gas_snapshot.json").read_bytes())
    counts = json.loads((ROOT / "benchmarks" / "ledger_counts.json").read_bytes())
    columns = {
        "`commit_updates`": "commit_updates, third round",
        "of each client": "commit_updates, third round, each client",
        "`decide`": "decide, third round",
        "`decide`, other members reply": "decide, other repliers in the election",
    }
    rows = [
        [size, *(f"{gas[name]:,}" for name in columns.values())] for size, gas in snapshot.items()
    ]
    first = next(iter(snapshot.values()))
    named = {
        "gas.deployment": f"{first['deployment']:,}",
        "gas.registration": f"{first['registration, each client']:,}",
        "gas.rounds": "\n".join(markdown(("committee and trainers", *columns), rows)),
    }
    for call in ("commit_updates", "decide"):
        named[f"opcodes.{call}"] = f"{counts[call]['opcodes']:,}"
        named[f"opcodes.{call}.py-evm"] = f"{counts[call]['left to py-evm']:,}"
    return named


def _engine() -> dict[str, str]:
    """Return what the engine's rounds take, beside other projects and on a card."""
    gpu, scoring = _result("gpu.json"), _result("scoring.json")
    trained = [
        [
            GPU_WORKS[row["work"]],
            f"{row['ms a client']:.3g}",
            f"{row['processor ms a client']:.4g}",
            f"{row['processor ms a client'] / row['ms a client']:.2g}",
        ]
        for row in gpu["training"]
    ]
    scored = [[str(value) for value in row.values()] for row in scoring["works"]]
    cpu = {row["work"]: row["s a round"] for row in scoring["works"]}
    rounds, peers = _result("rounds.json"), []
    for work, title in WORKS.items():
        medians = {row["contender"]: row["wall_median"] for row in rounds[work]["contenders"]}
        ours, *others = (
            next((medians[name] for name in names if name in medians), None)
            for names in PEERS.values()
        )
        told = ("" if other is None else f"{other:.3g} ({other / ours:.2g})" for other in others)
        peers.append([title, f"{ours:.3g}", *told])
    return {
        "engine.machine": _machine(rounds["W1L"]["machine"]),
        "engine.peers": "\n".join(markdown(("", *PEERS), peers)),
        "gpu.training": "\n".join(markdown(("training", "card", "one core", "ratio"), trained)),
        "gpu.machine": f"{gpu['card']['environment']}; {_machine(gpu['machine'])}",
        "gpu.tests": f"{gpu['tests']['passed']} of {gpu['tests']['tests']}",
        "gpu.round": f"{gpu['round']['round s']:.1f}",
        "gpu.round.training": f"{gpu['round']['training s']:.1f}",
        "scoring.works": "\n".join(markdown(tuple(scoring["works"][0]), scored)),
        "scoring.clip": f"{cpu['clip, strategy 3'] / cpu['distances, strategy 3']:.2g}",
    }


def _machine(row: dict[str, Any]) -> str:
    return "{processor}, {cores} cores, Python {python}, torch {torch}".format(**row)


def _result(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((MEASURED / name).read_bytes())
    return document


def main(words: list[str] | None = None) -> int:
    """Write or check the figures of all pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="list pages that differ; write none")
    is_check = parser.parse_args(words).check
    differing = 0
    for page in pages():
        text = page.read_text("utf-8")
        try:
            new = filled(text, all_figures())
        except PageError as error:
            sys.exit(f"{page.relative_to(ROOT)}: {error}")
        if new != text:
            differing += 1
            print(page.relative_to(ROOT))
            if not is_check:
                page.write_text(new, "utf-8")
    return int(is_check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
