"""`cmfl coverage`: which updates of a run auditors have repeated, and what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import AsJson, print_json, print_line
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.source_options import EvidenceOptions
from cmfl.commands.verify_training import read_bounds
from ledger.protocol.errors import BlobError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.history.training_coverage import AttestedUpdate, TrainingCoverage

WIDEST = 100
"""Clients of a grid; with more only the numbers of each round are shown."""

MARKS = {"same": "s", "other": "X", "disputed": "?", "none": "."}


@expand_groups
def coverage(
    source: EvidenceOptions,
    rounds: Annotated[
        str | None,
        typer.Option("--rounds", metavar="A..B", help="First and last round; else all."),
    ] = None,
    mailbox: Annotated[
        str | None,
        typer.Option(
            "--mailbox", help="URL or folder with the attestations; else that of the blobs."
        ),
    ] = None,
    auditor: Annotated[
        list[str] | None,
        typer.Option(
            "--auditor",
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
    from ledger.chain.addresses import to_canonical
    from ledger.chain.contract.deployment import deployed_domain
    from ledger.history.training_coverage import training_coverage
    from ledger.protocol.types import Address
    from ledger.storage.opening import mailbox_at

    bounds = read_bounds(None, rounds)
    trusted = {Address(to_canonical(address)) for address in auditor or ()}
    target = source.target()
    place = mailbox or target.mailbox_place()
    if place is None:
        raise ConfigurationError("a service has no attestations: name their place with --mailbox")
    with target.reader() as chain, chain.snapshot() as view:
        history = target.history(view)
        domain = deployed_domain(history.ledger)
        try:
            result = training_coverage(history, domain, mailbox_at(place), bounds, trusted)
        except OSError as error:
            raise BlobError(f"mailbox {place}: {error.strerror or error}") from error
    if json:
        print_json(result.as_dict())
        return
    for line in _lines(result):
        print_line(line)


def _lines(result: TrainingCoverage) -> Iterator[str]:
    """Yield the coverage for people."""
    same, other, disputed, none = result.counts.values()
    updates = len(result.updates)
    yield (
        f"{updates - none} of {updates} updates of rounds {result.first} to {result.last} "
        f"attested: {same} same, {other} other, {disputed} disputed"
    )
    yield from (f"auditor 0x{address.hex()}" for address in result.auditors)
    by_round: dict[int, dict[int, AttestedUpdate]] = {}
    for update in result.updates:
        by_round.setdefault(update.round, {})[update.client] = update
    if result.clients <= WIDEST:
        yield "one column for each client: s same, X other, ? disputed, . not attested"
    for number, updates_of_round in by_round.items():
        if result.clients <= WIDEST:
            found = (updates_of_round.get(client) for client in range(result.clients))
            row = "".join(" " if each is None else MARKS[each.verdict] for each in found)
            yield f"{number:>6}  {row.rstrip()}"
        else:
            verdicts = [each.verdict for each in updates_of_round.values()]
            counts = ", ".join(f"{verdicts.count(name)} {name}" for name in MARKS)
            yield f"round {number}: {counts}"
    for update in result.updates:
        if update.verdict in {"other", "disputed"}:
            words = [
                f"{each['verdict']} by {each['auditor']}"
                for each in update.as_dict()["attestations"]
            ]
            yield f"round {update.round}, client {update.client}: {', '.join(words)}"
