"""The audit of a whole run from chain and blobs alone, trusting neither index nor API.

The backbone is a replay: every transaction to the contract goes through the executable
specification again (`replay.py`), which must give the recorded events and the contract's state.
What the chain cannot enforce - distances, means, the model - is judged from the round's record and
its blobs by the functions that members call before they vote (`ledger.protocol.judgement`).

The ten steps, each passed, failed with its first contradiction, or not checkable:

     1 deployment and parameters       `steps/deployment.py`
     2 head chain and seeds            `replay.py`, `steps/heads.py`
     3 certificates, signatures, base  `replay.py`, `steps/certificates.py`
     4 sampling from the seed          `replay.py`, `steps/sampling.py`
     5 blobs equal to commitments      `archive.py`, `steps/blobs.py`
     6 each member's distances         `steps/distances.py`
     7 means and medians               `steps/means.py`
     8 ranking, accepted set, election `replay.py`, `steps/ranking.py`
     9 the model                       `steps/model.py`
    10 nothing missing in between      `replay.py`, `steps/completeness.py`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.audit.archive import Archive
from ledger.audit.codes import Count, Fact, FindingKind, Need, Step
from ledger.audit.evidence import closing_in, gather, participants_in
from ledger.audit.findings import AuditLog
from ledger.audit.incidents import find_incidents
from ledger.audit.replay import Replay
from ledger.audit.report import REPORT_VERSION, AuditReport, Contradiction, Finding, Missing
from ledger.audit.sentences import hexed
from ledger.audit.steps.blobs import check_record
from ledger.audit.steps.certificates import check_base
from ledger.audit.steps.completeness import account_for_commitments, find_absent
from ledger.audit.steps.deployment import read_start
from ledger.audit.steps.distances import check_distances
from ledger.audit.steps.heads import check_head_block, check_state, read_snapshot, verify_file
from ledger.audit.steps.means import check_means
from ledger.audit.steps.model import ModelChain
from ledger.audit.steps.ranking import check_ranking, check_sets, is_sane
from ledger.audit.steps.sampling import check_sampling
from ledger.chain.ports import ChainUnreachableError
from ledger.protocol import rounds
from ledger.protocol.errors import ChainError
from ledger.protocol.inputs import Inputs
from ledger.protocol.ledger_state import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.audit.evidence import RoundEvidence
    from ledger.audit.replay import ReplayedRound
    from ledger.audit.steps.deployment import RunStart
    from ledger.blobs.store import BlobReader
    from ledger.chain.contract.committee_ledger import CommitteeLedger, Snapshot

_NEED_ROUND_BEFORE = (
    Step.SAMPLING,
    Step.DISTANCES,
    Step.MEANS,
    Step.RANKING,
    Step.MODEL,
    Step.COMPLETENESS,
)


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
    auditor = Auditor(ledger, blobs, progress)
    try:
        auditor.check()
    except ChainUnreachableError:
        raise
    except ChainError as error:
        auditor.log.contradict(Step.HEAD, Contradiction(Fact.CHAIN_UNREADABLE, true=str(error)))
        auditor.log.lack(Missing(Need.CHAIN), *Step)
    return auditor.report()


class Auditor:
    """One audit while it runs.

    Attributes:
        log: what was found so far.
    """

    def __init__(
        self,
        ledger: CommitteeLedger,
        blobs: BlobReader,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.log = AuditLog()
        self._ledger = ledger
        self._archive = Archive(blobs, self.log)
        self._progress = progress
        self._facts: dict[str, Any] = {
            "address": ledger.address,
            "chain_id": ledger.chain.chain_id,
            "genesis_hash": hexed(ledger.chain.genesis_hash),
            "head_block": 0,
            "head_block_hash": "",
            "config": "",
            "head": "",
        }
        self._rounds = 0

    def check(self) -> None:
        """Go through the whole run."""
        ledger, log = self._ledger, self.log
        head = ledger.chain.head()
        self._facts |= {"head_block": head.number, "head_block_hash": hexed(head.hash)}
        verify_file(ledger, log)
        start = read_start(ledger, self._archive)
        if start is None:
            log.lack(Missing(Need.DEPLOYMENT), *Step)
            return
        self._facts |= _deployment_facts(start)
        snapshot = read_snapshot(ledger, head.number, log)
        replay = Replay(ledger, rounds.deployed(start.deployment, start.domain), log)
        model = self._first_model(start)
        for replayed in replay.ended_rounds(head.number):
            self._check_round(replayed, start, model)
            if self._progress is not None:
                self._progress(replayed.round, _ended(snapshot, self._rounds))
        self._facts |= {"head": hexed(replay.state.head), "round": replay.state.round}
        self._facts["stage"] = replay.state.stage.name.lower()
        log.counts[Count.OPEN_COMMITMENTS] = replay.open_commitments()
        if snapshot is not None:
            check_state(snapshot, replay, log)
        check_head_block(ledger, head, log)

    def report(self) -> AuditReport:
        """Return the report of what was found."""
        log = self.log
        return AuditReport(
            version=REPORT_VERSION,
            deployment=self._facts,
            rounds=self._rounds,
            steps=log.steps(),
            findings=tuple(log.findings),
            finding_counts={str(kind): n for kind, n in sorted(log.finding_counts.items())},
            counts={str(count): n for count, n in sorted(log.counts.items())},
        )

    def _first_model(self, start: RunStart) -> ModelChain:
        model = ModelChain(start.deployment.model)
        if start.document is not None:
            parameters = start.document.parameters
            model.load(start.deployment.model, parameters.dimension, None, self._archive)
            if not parameters.scores_checked:
                kind = FindingKind.SCORES_UNCHECKED
                self.log.find(Finding(kind, None, (), (), proven=True))
        return model

    def _check_round(self, replayed: ReplayedRound, start: RunStart, model: ModelChain) -> None:
        log, at = self.log, replayed.round
        self._rounds += 1
        if at != self._rounds:
            values = str(at), str(self._rounds)
            contradiction = Contradiction(Fact.ROUND_ORDER, at, (), "", *values)
            log.contradict(Step.COMPLETENESS, contradiction)
        if not replayed.known:
            log.lack(Missing(Need.ROUND_BEFORE, at), *_NEED_ROUND_BEFORE)
            return
        decided = replayed.decided
        log.counts[Count.ROUNDS_ABANDONED if decided is None else Count.ROUNDS_DECIDED] += 1
        if decided is None:
            evidence = (hexed(replayed.transaction),)
            log.find(Finding(FindingKind.ABANDONED_ROUND, at, (), evidence, proven=True))
        elif not is_sane(decided, start.deployment, log):
            return
        else:
            check_sets(decided, start.deployment, log)
        self._check_inputs(replayed, start, model)

    def _check_inputs(self, replayed: ReplayedRound, start: RunStart, model: ModelChain) -> None:
        log, event = self.log, replayed.decided
        participants = participants_in(replayed)
        closing = closing_in(replayed, participants)
        account_for_commitments(replayed, participants, closing, log)
        if event is None:
            return
        check_base(replayed, event, closing, log)
        check_sampling(event, participants, log)
        if start.document is None:
            return
        inputs = Inputs(
            parameters=start.document.parameters,
            layout=start.document.layout,
            domain=start.domain,
            registry=replayed.before.registry,
            round=replayed.round,
            seed=replayed.before.seed,
            participants=participants,
            closing=closing,
        )
        self._judge(gather(inputs, event, self._archive), model)

    def _judge(self, found: RoundEvidence, model: ModelChain) -> None:
        """Judge a round by the functions that members call."""
        log = self.log
        check_record(found, log)
        doubts = check_distances(found, log)
        check_means(found, doubts, log)
        check_ranking(found, log)
        find_incidents(found, model.vector, self._archive)
        find_absent(found, log)
        model.check(found, self._archive)


def _ended(snapshot: Snapshot | None, rounds_so_far: int) -> int:
    """Return how many rounds have ended, as the contract says."""
    if snapshot is None:
        return rounds_so_far
    return snapshot.round if snapshot.stage is Stage.FINISHED else snapshot.round - 1


def _deployment_facts(start: RunStart) -> dict[str, Any]:
    d = start.deployment
    return {
        "config": hexed(d.config),
        "clients": d.clients,
        "trainers": d.trainers,
        "members": d.members,
        "rounds": d.rounds,
        "form": int(d.form),
        "aggregation_ppm": d.aggregation_ppm,
        "commit_blocks": d.commit_blocks,
        "deadline_blocks": d.deadline_blocks,
        "replies": d.replies,
        "beacon": str(d.beacon),
    }
