"""Coverage of a run's training: which updates auditors have repeated, and what they found."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmfl.arguments import checked, first_and_last
from cmfl.auditing import audited_target
from cmfl.display import Table
from cmfl.recorded import Run
from cmfl.where import Target, open_deployment
from ledger.protocol.errors import BlobError

if TYPE_CHECKING:
    from ledger.history.answers import TrainingCoverage


class Coverage:
    """The coverage of some rounds of a run by attestations, each of which is its auditor's word.

    Attributes:
        answer: the whole of it, as `cmfl coverage --json` prints it.
    """

    def __init__(self, answer: TrainingCoverage) -> None:
        self.answer = answer

    @property
    def rounds(self) -> tuple[int, int]:
        """First and last round."""
        return self.answer["first"], self.answer["last"]

    @property
    def counts(self) -> dict[str, int]:
        """Number of updates by verdict: same, other, disputed, none."""
        return {name: int(count) for name, count in self.as_dict()["counts"].items()}

    @property
    def auditors(self) -> list[str]:
        """Addresses of those who have attested anything here."""
        return list(self.answer["auditors"])

    @property
    def updates(self) -> Table:
        """A row for each update: round, client, verdict, and the auditors by their verdicts."""
        return Table(
            {
                "round": update["round"],
                "client": update["client"],
                "verdict": update["verdict"],
                "same": _by(update["attestations"], "same"),
                "other": _by(update["attestations"], "other"),
            }
            for update in self.answer["updates"]
        )

    @property
    def sentence(self) -> str:
        """The numbers in a sentence."""
        same, other, disputed, none = self.counts.values()
        updates = same + other + disputed + none
        first, last = self.rounds
        return (
            f"{updates - none} of {updates} updates of rounds {first} to {last} attested: "
            f"{same} same, {other} other, {disputed} disputed"
        )

    def to_pandas(self) -> Any:
        """Return the updates as a pandas DataFrame."""
        return self.updates.to_pandas()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return dict(self.answer)

    def __repr__(self) -> str:
        return f"Coverage({self.sentence})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence)}</p>{self.updates._repr_html_()}"


@checked
def coverage(
    run: Run | str | Path | None = None,
    *,
    name: str | None = None,
    rounds: Sequence[int] | None = None,
    auditors: Sequence[str] = (),
    mailbox: str | Path | None = None,
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
    blobs: str | Path | None = None,
) -> Coverage:
    """Return which updates of a run auditors have repeated, by their attestations.

    Anybody can sign with a new key: name the auditors that you trust.

    Args:
        run: what `cmfl.run`, `cmfl.open` or `cmfl.connect` gave, or the path of a home. A service
            reads its own mailbox unless one is named.
        name: of the run in a home with several.
        rounds: first and last round; None for all that have ended.
        auditors: addresses whose attestations count alone; none for everybody's.
        mailbox: URL or folder with the attestations; None for that of the blobs.
        rpc_url: a node whose chain is read, in place of the home's own chain.
        address: of the contract on that chain, 0x-hex.
        chain_id: that the node must have; None accepts the node's own.
        blobs: URL or folder of the blobs.

    Raises:
        ConfigurationError: it is not clear what to read, or an argument is wrong.
        ChainError: the chain cannot be read, or an address is invalid.
        BlobError: the mailbox cannot be read.
        ServiceError: the service does not answer as it should.
    """
    bounds = None if rounds is None else first_and_last(rounds)
    place = None if mailbox is None else str(mailbox)
    elsewhere = (rpc_url, address, chain_id, blobs, mailbox)
    if isinstance(run, Run) and name in {None, run.name} and elsewhere == (None,) * 5:
        target = run.target  # a service reads its own chain and mailbox
    else:
        target = audited_target(run, name, rpc_url, address, chain_id, blobs)
    return Coverage(coverage_of(target, bounds, auditors, place))


def coverage_of(
    target: Target, rounds: tuple[int, int] | None, auditors: Collection[str], mailbox: str | None
) -> TrainingCoverage:
    """Return the coverage of the run that a target names; the command and `coverage` share it.

    Args:
        target: chain, contract and blobs, or a service.
        rounds: first and last; None for all that have ended.
        auditors: addresses whose attestations count alone; none for everybody's.
        mailbox: location of the attestations; None for the service's, or that of the blobs.
    """
    from ledger.chain.addresses import eip55
    from ledger.chain.contract.deploy import deployed_domain
    from ledger.history.training import counting_only, training_coverage
    from ledger.storage.opening import mailbox_at, require_mailbox

    trusted = {eip55(each) for each in auditors}
    if target.remote is not None and mailbox is None:
        with open_deployment(target) as deployment:
            first, last = rounds or (None, None)
            return counting_only(deployment.training(first, last), trusted)
    target.require_chain_of_its_own()
    if mailbox is not None:
        require_mailbox(mailbox)
    place = mailbox or target.mailbox_place()
    assert place is not None, "a service without a named mailbox is asked itself"
    with target.reader() as chain, chain.snapshot() as view:
        history = target.history(view)
        domain = deployed_domain(history.ledger, allow_unknown_creation=True)
        try:
            found = training_coverage(history, domain, mailbox_at(place), rounds or (None, None))
        except OSError as error:
            named = str(error) if error.strerror is None else f"{place}: {error.strerror}"
            raise BlobError(f"mailbox {named}") from error
    return counting_only(found, trusted)


def _by(attestations: Sequence[Any], verdict: str) -> str:
    named = (each["auditor"] for each in attestations if each["verdict"] == verdict)
    return ", ".join(dict.fromkeys(named))
