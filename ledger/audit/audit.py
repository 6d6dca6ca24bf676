"""The audit of a whole run from chain and blobs alone, trusting neither index nor API.

The backbone is a replay: every transaction to the contract goes through the executable
specification again (`replay.py`), which must give the recorded events and the contract's state.
What the chain cannot enforce - distances, means, the model - is recomputed from the blobs.

The ten steps, each passed, failed with its first contradiction, or not checkable:

     1 deployment and parameters       `opening.py`
     2 head chain and seeds            `replay.py`, `opening.py`
     3 certificates and signatures     `replay.py`, `accusations.py`
     4 sampling from the seed          `replay.py`, `completeness.py`
     5 blobs equal to commitments      `evidence.py`
     6 each member's distances         `distances.py`
     7 means and medians               `outcome.py`
     8 ranking, accepted set, election `replay.py`, `outcome.py`
     9 the model                       `outcome.py`
    10 nothing missing in between      `replay.py`, `completeness.py`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.audit import report
from ledger.audit.accusations import check_accusations, find_bans
from ledger.audit.completeness import check_completeness, check_sampling
from ledger.audit.distances import check_distances
from ledger.audit.evidence import Archive, gather
from ledger.audit.opening import check_state, read_opening, verify_file
from ledger.audit.outcome import ModelChain, check_means, check_ranking, is_sane
from ledger.audit.replay import Replay
from ledger.audit.report import REPORT_VERSION, AuditReport, Finding, Notebook, readable
from ledger.chain.ports import ChainUnreachableError
from ledger.protocol import ledger_state, rounds
from ledger.protocol.errors import ChainError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.audit.opening import Opening
    from ledger.audit.replay import ReplayedRound
    from ledger.blobs.store import BlobReader
    from ledger.chain.committee_ledger import CommitteeLedger, Snapshot
    from ledger.protocol.documents import RunDocument

__all__ = ["AuditReport", "audit", "readable"]


def audit(
    ledger: CommitteeLedger,
    blobs: BlobReader,
    progress: Callable[[int, int], None] | None = None,
) -> AuditReport:
    """Return what an audit of all ended rounds found.

    Args:
        ledger: the contract, on a chain to read from.
        blobs: what everybody published.
        progress: called with each audited round and the number of ended rounds.

    Returns:
        The report; nothing about the record raises.

    Raises:
        ChainUnreachableError: the node went away, so that nothing can be said.
    """
    run = _Audit(ledger, blobs, progress)
    try:
        run.check()
    except ChainUnreachableError:
        raise
    except ChainError as error:
        run.notes.contradict(report.HEAD, "the chain can be read", str(error))
        run.stop("the chain cannot be read any further")
    return run.report()


class _Audit:
    """One audit while it runs.

    Attributes:
        notes: what was found so far.
    """

    def __init__(
        self,
        ledger: CommitteeLedger,
        blobs: BlobReader,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.notes = Notebook()
        self._ledger = ledger
        self._desk = Archive(blobs, self.notes)
        self._progress = progress
        self._facts: dict[str, Any] = {
            "address": ledger.address,
            "chain_id": ledger.chain.chain_id,
            "genesis_hash": report.shown(ledger.chain.genesis_hash),
            "head_block": 0,
            "head_block_hash": "",
            "config": "",
            "head": "",
        }
        self._rounds = 0

    def check(self) -> None:
        """Go through the whole run."""
        head = self._ledger.chain.head()
        self._facts |= {"head_block": head.number, "head_block_hash": report.shown(head.hash)}
        verify_file(self._ledger, self.notes)
        opening = read_opening(self._ledger, self._desk)
        if opening is None:
            self.stop("what was deployed is not known")
            return
        self._facts |= _deployment_facts(opening)
        snapshot = self._snapshot(head.number)
        replay = Replay(
            self._ledger, rounds.deployed(opening.deployment, opening.domain), self.notes
        )
        model = ModelChain(opening.deployment.model)
        if opening.document is not None:
            dimension = opening.document.parameters.dimension
            model.load(opening.deployment.model, dimension, 0, self._desk)
        for facts in replay.ended_rounds(head.number):
            self._check_round(facts, opening, model)
            if self._progress is not None:
                self._progress(facts.round, _ended(snapshot, self._rounds))
        self._facts |= {"head": report.shown(replay.state.head), "round": replay.state.round}
        self._facts["stage"] = replay.state.stage.name.lower()
        if snapshot is not None:
            check_state(snapshot, replay.state, self.notes)
        again = self._ledger.chain.block(head.number)
        if again.hash != head.hash:
            true = "the chain was reorganised during the audit, or answers as it likes"
            what = f"block {head.number} is {report.shown(head.hash)}"
            self.notes.contradict(report.HEAD, what, true)

    def stop(self, why: str) -> None:
        """Write down that no step could be finished.

        Args:
            why: the reason.
        """
        for step in report.TITLES:
            self.notes.lack(step, why)

    def report(self) -> AuditReport:
        """Return the report of what was found."""
        return AuditReport(
            version=REPORT_VERSION,
            deployment=self._facts,
            rounds=self._rounds,
            steps=self.notes.steps(),
            findings=tuple(self.notes.findings),
            finding_counts=dict(sorted(self.notes.finding_counts.items())),
            counts=dict(sorted(self.notes.counts.items())),
        )

    def _snapshot(self, block_number: int) -> Snapshot | None:
        try:
            return self._ledger.state(block_number)
        except ChainUnreachableError:
            raise
        except (ChainError, ValueError) as error:
            self.notes.contradict(report.HEAD, "the contract says where it stands", str(error))
            return None

    def _check_round(self, facts: ReplayedRound, opening: Opening, model: ModelChain) -> None:
        notes = self.notes
        self._rounds += 1
        if facts.round != self._rounds:
            what = f"round {facts.round} is the {self._rounds}. that ended"
            notes.contradict(report.COMPLETENESS, what, f"round {self._rounds} should", facts.round)
        find_bans(facts, opening.domain, notes)
        if not facts.known:
            why = f"round {facts.round}: seed and committee are not known without the round before"
            for step in (report.SAMPLING, report.DISTANCES, report.MEANS, report.RANKING):
                notes.lack(step, why)
            notes.lack(report.MODEL, why)
            notes.lack(report.COMPLETENESS, why)
            return
        check_sampling(facts, opening.deployment, notes)
        if facts.decided is None:
            self._abandoned(facts, opening.document)
        elif is_sane(facts.decided, opening.deployment, notes):
            notes.counts["rounds decided"] += 1
            if opening.document is not None:
                self._check_decision(facts, facts.decided, opening, opening.document, model)

    def _check_decision(
        self,
        facts: ReplayedRound,
        event: ledger_state.RoundDecided,
        opening: Opening,
        document: RunDocument,
        model: ModelChain,
    ) -> None:
        notes, parameters = self.notes, document.parameters
        evidence = gather(facts, event, opening, document, self._desk)
        check_accusations(evidence, notes)
        check_distances(evidence, self._desk)
        check_means(evidence, parameters, notes)
        check_ranking(evidence, opening.deployment, notes)
        model.check(evidence, parameters, self._desk)
        check_completeness(evidence, parameters.dimension, self._desk)

    def _abandoned(self, facts: ReplayedRound, document: RunDocument | None) -> None:
        self.notes.counts["rounds abandoned"] += 1
        sentence = "the round ended at its deadline without a decision; the model stayed"
        evidence = (facts.transaction.hex(),)
        self.notes.find(
            Finding("abandoned round", facts.round, (), sentence, evidence, proven=True)
        )
        if document is None:
            return
        # Nothing rests on these payloads, and a missing one may be why the round was abandoned.
        for client, payload in facts.payloads.items():
            self._desk.payload(payload, 4 * document.parameters.dimension, facts.round, client)


def _ended(snapshot: Snapshot | None, rounds_so_far: int) -> int:
    """Return how many rounds have ended, as the contract says."""
    if snapshot is None:
        return rounds_so_far
    return snapshot.round if snapshot.stage is ledger_state.Stage.FINISHED else snapshot.round - 1


def _deployment_facts(opening: Opening) -> dict[str, Any]:
    d = opening.deployment
    return {
        "config": report.shown(d.config),
        "clients": d.clients,
        "trainers": d.trainers,
        "members": d.members,
        "rounds": d.rounds,
        "strategy": int(d.strategy),
        "aggregation_ppm": d.aggregation_ppm,
        "deadline_blocks": d.deadline_blocks,
        "beacon": str(d.beacon),
    }
