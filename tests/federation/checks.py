"""What has to hold after every round of a disturbed federation, and what is counted if it does not.

Everything is read from chain and blobs; of what workers say of themselves only two things are
taken: which model they hold, and whether they are up again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ledger.audit.audit import audit
from ledger.audit.codes import FindingKind, Outcome
from ledger.audit.earlier import EarlierAudit, read_report, report_bytes
from ledger.blobs.store import FolderBlobs
from tests.federation.cells import BANS, LIES, Fault

if TYPE_CHECKING:
    from clients.federation.federation import Federation
    from clients.federation.watching import EndedRound
    from ledger.audit.report import AuditReport
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.types import ClientId
    from tests.federation.disturbances import Disturbance

ACCUSATIONS = frozenset(
    {
        FindingKind.FALSE_SCORES,
        FindingKind.TWO_VECTORS,
        FindingKind.WRONG_PROPOSAL,
        FindingKind.EQUIVOCATION,
        FindingKind.BAN,
    }
)
"""What only the faulty are to be named for; silence and absence befall the disturbed, too."""


class Wrong(StrEnum):
    """What must not be."""

    STUCK = "stuck"
    LOST_ROUND = "lost round"
    HONEST_BAN = "honest ban"
    WRONG_MODEL = "wrong model"
    LOST_WORK = "lost work"
    AUDIT = "audit"
    ACCUSED = "honest accused"
    ABANDONED = "abandoned"
    NO_RECOVERY = "no recovery"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be.

    Attributes:
        wrong: what.
        round: in which round.
        fault: that was done in it, or in the one before; empty for none.
        clients: whom it concerns.
    """

    wrong: Wrong
    round: int
    fault: str = ""
    clients: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Checks:
    """Checks one round after the other, and the whole run now and then.

    Attributes:
        federation: that is checked.
        violations: what was found.
        guilty: clients that have been made to lie, and so may be accused.
        banned: clients that may be banned.
    """

    federation: Federation
    violations: list[Violation] = field(default_factory=list)
    guilty: set[ClientId] = field(default_factory=set)
    banned: set[ClientId] = field(default_factory=set)
    _heads: dict[int, str] = field(default_factory=dict)
    _earlier: EarlierAudit | None = None

    def begun(self, done: Disturbance) -> None:
        """Take down who may be accused of what from now on.

        Args:
            done: what is done.
        """
        if done.fault in LIES:
            self.guilty |= done.clients
        if done.fault in BANS:
            self.banned |= done.clients

    def ended(self, one: EndedRound, done: Disturbance | None) -> None:
        """Check a round that is over.

        Args:
            one: the round.
            done: what was done in it; None for nothing.
        """
        fault = "" if done is None else str(done.fault)
        disturbed = frozenset() if done is None else done.clients
        if one.number != len(self._heads) + 1:
            self._found(Wrong.LOST_ROUND, one, fault)
        self._heads[one.number] = one.head.hex()
        if strangers := [c for c in one.banned if c not in self.banned]:
            self._found(Wrong.HONEST_BAN, one, fault, strangers)
        if lost := [c for c in one.unusable if c not in disturbed and c not in self.banned]:
            self._found(Wrong.LOST_WORK, one, fault, lost)
        if not one.is_decided and fault != Fault.TOO_MANY:
            self._found(Wrong.ABANDONED, one, fault)

    def models(self, one: EndedRound, seen: dict[str, str], fault: str) -> None:
        """Check that every honest worker holds the model that the round was decided with.

        Args:
            one: the round.
            seen: digest by worker, 0x-hex.
            fault: that was done.
        """
        if one.model is None:
            return
        for model in seen.values():
            if model.removeprefix("0x") != one.model.hex():
                self._found(Wrong.WRONG_MODEL, one, fault)

    def add(self, wrong: Wrong, number: int, done: Disturbance | None) -> None:
        """Take down what was seen elsewhere.

        Args:
            wrong: what.
            number: of the round.
            done: what was done in it.
        """
        fault = "" if done is None else str(done.fault)
        self.violations.append(Violation(wrong, number, fault))

    def whole(self, ledger: CommitteeLedger) -> AuditReport:
        """Audit all that has ended since the last time, on top of the audit before.

        Args:
            ledger: the contract.
        """
        blobs = FolderBlobs(self.federation.home.blobs)
        report = audit(ledger, blobs, earlier=self._earlier)
        if report.outcome is not Outcome.PASSED:
            self.violations.append(Violation(Wrong.AUDIT, report.rounds))
        else:
            self._earlier = read_report(report_bytes(report))
        for finding in report.findings:
            innocent = [c for c in finding.clients if c not in self.guilty]
            if finding.kind in ACCUSATIONS and finding.proven and innocent:
                found = Violation(Wrong.ACCUSED, finding.round or 0, "", tuple(map(int, innocent)))
                if found not in self.violations:
                    self.violations.append(found)
        return report

    def history(self, ledger: CommitteeLedger) -> None:
        """Check that every round that ever ended is still recorded with the same head.

        Args:
            ledger: the contract.
        """
        recorded = ledger.outcomes(100_000, descending=False)
        now = {one.event.round: one.event.head.hex() for one in recorded}  # type: ignore[union-attr]
        for number, head in self._heads.items():
            if now.get(number) != head:
                self.violations.append(Violation(Wrong.LOST_ROUND, number))

    def _found(
        self,
        wrong: Wrong,
        one: EndedRound,
        fault: str,
        clients: list[ClientId] | None = None,
    ) -> None:
        numbers = tuple(map(int, clients or ()))
        self.violations.append(Violation(wrong, one.number, fault, numbers))
