"""What has to hold after every round of a disturbed federation, and what is counted if it does not.

Everything is read from chain and blobs, and the honest updates are trained again; of what workers
say of themselves it is taken which model they hold, and whether they are up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ledger.audit.anchors import EarlierAudit, read_report, report_bytes
from ledger.audit.checks.rounds import BAN, EQUIVOCATION, FALSE_SCORES, TWO_VECTORS, WRONG_PROPOSAL
from ledger.audit.report import AuditOutcome, AuditReport, Finding
from ledger.protocol.ledger_state import RoundAbandoned, RoundDecided
from ledger.protocol.types import ClientId, Digest
from tests.federation.cells import BANS, NAMED_BY, Fault

if TYPE_CHECKING:
    from clients.testnet.network import LocalNetwork
    from clients.testnet.watch import WatchedRound
    from ledger.chain.contract.ledger import CommitteeLedger
    from tests.federation.disturbances import Disturbance

ACCUSATIONS = frozenset({FALSE_SCORES, TWO_VECTORS, WRONG_PROPOSAL, EQUIVOCATION, BAN})
"""What only the faulty are to be named for; silence and absence befall the disturbed, too."""

_ALL = 1_000_000


class Wrong(StrEnum):
    STUCK = "stuck"
    LOST_ROUND = "lost round"
    HONEST_BAN = "honest ban"
    WRONG_MODEL = "wrong model"
    LOST_WORK = "lost work"
    AUDIT = "audit"
    ACCUSED = "honest accused"
    NOT_NAMED = "liar not named"
    ABANDONED = "abandoned"
    NO_RECOVERY = "no recovery"


@dataclass(frozen=True, slots=True)
class Violation:
    wrong: Wrong
    round: int
    fault: str = ""
    clients: tuple[int, ...] = ()


@dataclass
class Checks:
    """Checks one round after the other, and the whole run now and then."""

    federation: LocalNetwork
    violations: list[Violation] = field(default_factory=list)
    liars: dict[int, frozenset[ClientId]] = field(default_factory=dict)
    banned: set[ClientId] = field(default_factory=set)
    earlier: EarlierAudit | None = None
    _heads: dict[int, str] = field(default_factory=dict)
    _final: dict[int, str | None] = field(default_factory=dict)
    _reorganised: set[int] = field(default_factory=set)
    _owed: list[tuple[int, Fault, frozenset[ClientId]]] = field(default_factory=list)
    _accused: set[Violation] = field(default_factory=set)
    _retrained: int = 0

    def begun(self, done: Disturbance, number: int) -> None:
        self.liars[number] = done.liars
        if done.fault is Fault.REORGANISED:
            self._reorganised.add(number)
        if done.fault in BANS:
            self.banned |= done.liars

    def ended(
        self,
        one: WatchedRound,
        done: Disturbance | None,
        away: frozenset[ClientId] = frozenset(),
        *,
        is_borne: bool = True,
        is_drawn: bool = False,
    ) -> None:
        fault = "" if done is None else str(done.fault)
        disturbed = away if done is None else away | done.clients
        if one.number != len(self._heads) + 1:
            self._found(Wrong.LOST_ROUND, one, fault)
        self._heads[one.number] = one.head.hex()
        if strangers := [c for c in one.banned if c not in self.banned]:
            self._found(Wrong.HONEST_BAN, one, fault, strangers)
        if lost := [c for c in one.unusable if c not in disturbed and c not in self.banned]:
            self._found(Wrong.LOST_WORK, one, fault, lost)
        may_end = one.is_decided or is_drawn or fault == Fault.TOO_MANY
        if is_borne and not may_end:
            self._found(Wrong.ABANDONED, one, fault)

    def had_effect(self, number: int, fault: Fault, clients: frozenset[ClientId]) -> None:
        self._owed.append((number, fault, clients))

    def models(self, one: WatchedRound, model: Digest, seen: dict[str, str]) -> None:
        """Check that every worker says that it held the model that the round began with."""
        for said in seen.values():
            if said.removeprefix("0x") != model.hex():
                self._found(Wrong.WRONG_MODEL, one, "")

    @property
    def untrained(self) -> range:
        """The rounds whose end is final and whose updates have not been trained again yet."""
        return range(self._retrained + 1, len(self._final) + 1)

    def updates(self, differing: Mapping[int, tuple[ClientId, ...]]) -> None:
        """Check that every honest update of the rounds since follows from the chain's model."""
        for number, clients in differing.items():
            if clients:
                found = Violation(Wrong.WRONG_MODEL, number, "", tuple(map(int, clients)))
                self.violations.append(found)
            self._retrained = number

    def add(self, wrong: Wrong, number: int, done: Disturbance | None) -> None:
        fault = "" if done is None else str(done.fault)
        self.violations.append(Violation(wrong, number, fault))

    def audited(self, report: AuditReport) -> None:
        if report.outcome is not AuditOutcome.PASSED:
            self.violations.append(Violation(Wrong.AUDIT, report.rounds))
        else:
            self.earlier = read_report(report_bytes(report))
        for finding in report.findings:
            liars = self.liars.get(_done_in(finding), frozenset())
            innocent = tuple(int(c) for c in finding.clients if c not in liars)
            if finding.kind in ACCUSATIONS and finding.proven and innocent:
                found = Violation(Wrong.ACCUSED, finding.round or 0, "", innocent)
                if found not in self._accused:  # the next report names them again
                    self._accused.add(found)
                    self.violations.append(found)
        self._require_named(report)

    def settled(self, ledger: CommitteeLedger, *, has_ended: bool = False) -> None:
        """Take the ends of all rounds but the newest for final, and see what they are by now.

        A round is told as soon as it has ended. Until that is final, a reorganisation may take its
        end back, and workers end it anew, with other signatures; nothing else may.
        """
        first, last = len(self._final) + 1, len(self._heads) - (not has_ended)
        if last < first:
            return
        now = _heads(ledger, len(self._heads) - first + 2)
        for number in range(first, last + 1):
            found = now.get(number)
            if found != self._heads[number] and number + 1 not in self._reorganised:
                self.violations.append(Violation(Wrong.LOST_ROUND, number))
            self._final[number] = found

    def history(self, ledger: CommitteeLedger) -> None:
        """Check that every round whose end was final is still recorded with the same head."""
        now = _heads(ledger, _ALL)
        for number, head in self._final.items():
            if now.get(number) != head:
                self.violations.append(Violation(Wrong.LOST_ROUND, number))
                self._final[number] = now.get(number)  # told once

    def _require_named(self, report: AuditReport) -> None:
        """Check that whoever got a lie onto the record is named for it, in its round."""
        named = {(f.kind, _done_in(f), client) for f in report.findings for client in f.clients}
        still_owed = []
        for number, fault, clients in self._owed:
            if number > report.rounds:
                still_owed.append((number, fault, clients))
                continue
            kinds = NAMED_BY[fault]
            missing = [c for c in clients if not any((k, number, c) in named for k in kinds)]
            if missing:
                found = Violation(Wrong.NOT_NAMED, number, fault, tuple(map(int, missing)))
                self.violations.append(found)
        self._owed = still_owed

    def _found(
        self, wrong: Wrong, one: WatchedRound, fault: str, clients: list[ClientId] | None = None
    ) -> None:
        numbers = tuple(map(int, clients or ()))
        self.violations.append(Violation(wrong, one.number, fault, numbers))


def _heads(ledger: CommitteeLedger, last: int) -> dict[int, str]:
    """Return the heads that the newest rounds have ended with, by round."""
    found = {}
    for recorded in ledger.outcomes(last):
        event = recorded.event
        assert isinstance(event, RoundDecided | RoundAbandoned), "a round ends in one of these ways"
        found[event.round] = event.head.hex()
    return found


def _done_in(finding: Finding) -> int:
    """Return the round in which somebody did what a finding names; a ban may come later."""
    return finding.round or 0 if finding.place is None else finding.place.round
