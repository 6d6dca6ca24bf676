"""Map from the paper's equations, strategies and algorithms to the code and to the chain.

The package's docstring shows the rows as a table; `tests/protocol/test_paper_map.py` keeps both
true: every name resolves, and every event and transaction of the contract occurs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperMapRow:
    r"""One piece of the paper, with its function, its transition and its event.

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
    PaperMapRow("Eq. localUpdate2", "localUpdate2", "clients.training.plain_trainer.PlainTrainer"),
    PaperMapRow("Eq. computeScore, member", "computeScore", f"{_RULES}distance.squared_distance"),
    PaperMapRow("Eq. computeScore", "computeScore", f"{_P}ranking.mean_distances", *_DECIDE),
    PaperMapRow("Eq. aggregation", "aggregation", f"{_RULES}aggregation.aggregate", *_DECIDE),
    PaperMapRow("Eq. globalUpdate", "globalUpdate", f"{_RULES}aggregation.aggregate", *_DECIDE),
    PaperMapRow("Ranking by score", "selection", f"{_P}ranking.rank", *_DECIDE),
    PaperMapRow("Selection I", "selection", f"{_RULES}selection.nearest", *_DECIDE),
    PaperMapRow("Selection II", "selection", f"{_RULES}selection.farthest", *_DECIDE),
    PaperMapRow(
        "Selection III (ours)",
        "",
        f"{_RULES}selection.below_two",
        *_DECIDE,
    ),
    PaperMapRow("Election", "election", f"{_P}ranking.candidates", *_DECIDE),
    PaperMapRow(
        "CCP 1, broadcast", "CommitteeConsensus", f"{_P}algorithms.VotingMember.publish_scores"
    ),
    PaperMapRow(
        "CCP 1, total scores", "CommitteeConsensus", f"{_P}judgement.rank_trainers", *_DECIDE
    ),
    PaperMapRow("CCP 2, primary", "CommitteeConsensus", f"{_P}consensus.primary_seat", *_DECIDE),
    PaperMapRow("CCP 3, own set", "CommitteeConsensus", f"{_P}judgement.judge"),
    PaperMapRow(
        "CCP 4, request", "CommitteeConsensus", f"{_P}algorithms.VotingMember.request", "decide"
    ),
    PaperMapRow(
        "CCP 5, replies", "CommitteeConsensus", f"{_P}algorithms.VotingMember.reply", "decide"
    ),
    PaperMapRow("CCP 6, quorum", "CommitteeConsensus", f"{_P}consensus.replies_needed", *_DECIDE),
    PaperMapRow("CCP 7, new committee", "CommitteeConsensus", f"{_P}ranking.elect", *_DECIDE),
    PaperMapRow("CCP 8, global model", "CommitteeConsensus", f"{_P}rounds.decide", *_DECIDE),
    PaperMapRow("Algorithm 1", "algorithm_CCP", f"{_P}algorithms.committee_consensus", *_DECIDE),
    PaperMapRow("Algorithm 2", "voting", f"{_P}algorithms.voting", *_DECIDE),
    PaperMapRow("Algorithm 3", "algorithm_CMFL", f"{_P}algorithms.training"),
    PaperMapRow(
        "Algorithm 3, clients",
        "algorithm_CMFL",
        f"{_P}rounds.register_clients",
        "register_clients",
        "ClientsRegistered",
    ),
    PaperMapRow(
        "Algorithm 3, committee",
        "algorithm_CMFL",
        f"{_P}sampling.drawn_committee",
        "register_clients",
        "LedgerOpened",
    ),
    PaperMapRow(
        "Algorithm 3, updates",
        "algorithm_CMFL",
        f"{_P}rounds.commit_updates",
        "commit_updates",
        "UpdatesCommitted",
    ),
    PaperMapRow("Algorithm 3, sampling", "algorithm_CMFL", f"{_P}sampling.sample_trainers"),
    PaperMapRow("Domain (ours)", "", f"{_P}ledger_state.domain_of", "", "LedgerDeployed"),
    PaperMapRow("Closing block (ours)", "", f"{_P}inputs.round_closing", "commit_updates"),
    PaperMapRow(
        "No consensus (ours)", "", f"{_P}rounds.abandon_round", "abandon_round", "RoundAbandoned"
    ),
    PaperMapRow(
        "Two statements (ours)",
        "",
        f"{_P}rounds.report_equivocation",
        "report_equivocation",
        "ClientBanned",
    ),
)
