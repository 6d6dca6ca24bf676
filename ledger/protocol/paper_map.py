"""Where each equation, strategy and algorithm of the paper is in the code, and on the chain.

The package's docstring shows the rows as a table; `tests/protocol/test_paper_map.py` keeps both
true: every name resolves, and every event and transaction of the contract occurs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    r"""One piece of the paper and what became of it.

    Attributes:
        paper: what it is called there; "ours" if we added it.
        label: the \label in the paper's source; empty for what is ours.
        function: dotted name of the Python function, class or method.
        contract: the contract's function that enforces it; empty if none does.
        event: the event that records it; empty if none does.
    """

    paper: str
    label: str
    function: str
    contract: str = ""
    event: str = ""


_P = "ledger.protocol."
_RULES = f"{_P}rules."
_DECIDE = ("decide", "RoundDecided")

PAPER_MAP = (
    Row("Eq. localUpdate2", "localUpdate2", "clients.engine.plain.PlainTrainer"),
    Row("Eq. computeScore, member", "computeScore", f"{_RULES}distance.squared.squared_distance"),
    Row("Eq. computeScore", "computeScore", f"{_RULES}scoring.mean.mean", *_DECIDE),
    Row("Eq. aggregation", "aggregation", f"{_RULES}aggregation.aggregate", *_DECIDE),
    Row("Eq. globalUpdate", "globalUpdate", f"{_RULES}aggregation.aggregate", *_DECIDE),
    Row("Ranking by score", "selection", f"{_P}ranking.rank", *_DECIDE),
    Row("Selection I", "selection", f"{_RULES}selection.nearest.nearest", *_DECIDE),
    Row("Selection II", "selection", f"{_RULES}selection.farthest.farthest", *_DECIDE),
    Row(
        "Selection III (ours)",
        "",
        f"{_RULES}selection.within_threshold.within_threshold",
        *_DECIDE,
    ),
    Row("Election", "election", f"{_P}election.elect", *_DECIDE),
    Row("CCP 1, broadcast", "CommitteeConsensus", f"{_P}algorithms.VotingMember.publish_scores"),
    Row("CCP 1, total scores", "CommitteeConsensus", f"{_P}judgement.rank_trainers", *_DECIDE),
    Row("CCP 2, primary", "CommitteeConsensus", f"{_P}consensus.primary_place", *_DECIDE),
    Row("CCP 3, own set", "CommitteeConsensus", f"{_P}judgement.judge"),
    Row("CCP 4, request", "CommitteeConsensus", f"{_P}algorithms.VotingMember.request", "decide"),
    Row("CCP 5, replies", "CommitteeConsensus", f"{_P}algorithms.VotingMember.reply", "decide"),
    Row("CCP 6, quorum", "CommitteeConsensus", f"{_P}consensus.replies_needed", *_DECIDE),
    Row("CCP 7, new committee", "CommitteeConsensus", f"{_P}election.elect", *_DECIDE),
    Row("CCP 8, global model", "CommitteeConsensus", f"{_P}rounds.decide", *_DECIDE),
    Row("Algorithm 1", "algorithm_CCP", f"{_P}algorithms.committee_consensus", *_DECIDE),
    Row("Algorithm 2", "voting", f"{_P}algorithms.voting", *_DECIDE),
    Row("Algorithm 3", "algorithm_CMFL", f"{_P}algorithms.training"),
    Row(
        "Algorithm 3, clients",
        "algorithm_CMFL",
        f"{_P}rounds.register_clients",
        "register_clients",
        "ClientsRegistered",
    ),
    Row(
        "Algorithm 3, committee",
        "algorithm_CMFL",
        f"{_P}sampling.drawn_committee",
        "register_clients",
        "LedgerOpened",
    ),
    Row(
        "Algorithm 3, updates",
        "algorithm_CMFL",
        f"{_P}rounds.commit_updates",
        "commit_updates",
        "UpdatesCommitted",
    ),
    Row("Algorithm 3, sampling", "algorithm_CMFL", f"{_P}sampling.sample_trainers"),
    Row("Domain (ours)", "", f"{_P}ledger_state.domain_of", "", "LedgerDeployed"),
    Row("Closing block (ours)", "", f"{_P}closing.closing_of", "commit_updates"),
    Row("No consensus (ours)", "", f"{_P}rounds.abandon_round", "abandon_round", "RoundAbandoned"),
    Row(
        "Two statements (ours)",
        "",
        f"{_P}rounds.report_equivocation",
        "report_equivocation",
        "ClientBanned",
    ),
)
