"""`cmfl coverage`: which updates of a run auditors have repeated, and what they found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import AsJson, print_json, print_line
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.source_options import EvidenceOptions
from cmfl.commands.verify_training import read_bounds

if TYPE_CHECKING:
    from cmfl.training_coverage import Coverage

WIDEST = 100
"""Clients of a grid; with more only the numbers of each round are shown."""

MOST_NAMED = 20
"""Auditors that are named: anybody can make keys without end."""

MARKS = {"same": "s", "other": "X", "disputed": "?", "none": "."}


@expand_groups
def coverage(
    source: EvidenceOptions,
    rounds: Annotated[
        str | None, typer.Option(metavar="A..B", help="First and last round; else all.")
    ] = None,
    mailbox: Annotated[
        str | None,
        typer.Option(
            help="URL or folder with the attestations; else that of the blobs, or of the service."
        ),
    ] = None,
    auditor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Count the attestations of this address; may be repeated; else everybody's.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show which updates have been repeated by auditors: rounds by clients, and their verdicts.

    Folds the attestations that `cmfl verify training --sign` puts into the mailbox. Each is its
    auditor's word, and anybody can sign with a new key: name the auditors that you trust. Where
    auditors disagree, all of them are shown; whoever repeats the update finds out who is false.
    """
    from cmfl.training_coverage import Coverage, coverage_of

    bounds = read_bounds(None, rounds)
    result = Coverage(coverage_of(source.target(), bounds, auditor or (), mailbox))
    if json:
        print_json(result.as_dict())
        return
    for line in _lines(result):
        print_line(line)


def _lines(result: Coverage) -> Iterator[str]:
    """Yield the coverage for people."""
    yield result.sentence
    auditors = result.auditors
    yield from (f"auditor {address}" for address in auditors[:MOST_NAMED])
    if len(auditors) > MOST_NAMED:
        yield f"and {len(auditors) - MOST_NAMED} more auditors: --auditor counts those you trust"
    clients, updates = result.answer["clients"], result.answer["updates"]
    by_round: dict[int, dict[int, str]] = {}
    for update in updates:
        by_round.setdefault(update["round"], {})[update["client"]] = update["verdict"]
    if clients <= WIDEST:
        yield "one column for each client: s same, X other, ? disputed, . not attested"
    for number, verdicts in by_round.items():
        if clients <= WIDEST:
            row = "".join(MARKS.get(verdicts.get(client, ""), " ") for client in range(clients))
            yield f"{number:>6}  {row.rstrip()}"
        else:
            found = list(verdicts.values())
            yield f"round {number}: {', '.join(f'{found.count(name)} {name}' for name in MARKS)}"
    for update in updates:
        if update["verdict"] in {"other", "disputed"}:
            given = [f"{each['verdict']} by {each['auditor']}" for each in update["attestations"]]
            words = list(dict.fromkeys(given))
            more = f", and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
            named = ", ".join(words[:MOST_NAMED])
            yield f"round {update['round']}, client {update['client']}: {named}{more}"
