"""Wrong transactions, each a small change of an honest one, with the refusal that it meets.

Here: commitments, reports, ends of rounds, and what comes after a ban. Wrong decisions are in
`wrong_decisions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledger.protocol import encoding, errors
from ledger.protocol.consensus import primary_place
from ledger.protocol.signing import sign
from ledger.protocol.types import NO_DIGEST, ClientId, Phase, Strategy, VoteKind
from tests.contracts import support

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.protocol.errors import Refusal
    from tests.contracts.twins import Outcome, Proposal, SignedCommitment, Twins


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong transaction in a round in which some clients have committed, not all.

    Attributes:
        sentence: what is wrong.
        refusal: what it meets if nothing else is wrong.
        act: sends it.
        strategy: of the deployment.
    """

    sentence: str
    refusal: type[Refusal]
    act: Callable[[Twins], Outcome]
    strategy: Strategy = Strategy.NEAREST


def rankable(twins: Twins) -> tuple[ClientId, ...]:
    """Return up to n clients with a commitment who are no members, ascending."""
    able = sorted(twins.state.committed - set(twins.state.committee))
    return tuple(able[: twins.state.deployment.trainers])


def honest(twins: Twins) -> Proposal:
    """Return the honest decision on all who can be ranked."""
    return support.proposal(twins, support.ranking_of(rankable(twins)))


def idle(twins: Twins) -> ClientId:
    """Return a client without commitment who is no member; a member if there is none."""
    state = twins.state
    everybody = map(ClientId, range(state.deployment.clients))
    idle = [client for client in everybody if client not in state.committed]
    return next((client for client in idle if client not in state.committee), idle[0])


def primary(twins: Twins, view: int) -> int:
    """Return the place of the aggregation phase's primary in a view."""
    state = twins.state
    return primary_place(state.seed, Phase.AGGREGATION, view, len(state.committee))


def _committing(
    *changes: Callable[[Twins], SignedCommitment],
) -> Callable[[Twins], Outcome]:
    return lambda twins: twins.commit(twins.state.round, [change(twins) for change in changes])


def _signed_again(change: Callable[[bytes], bytes]) -> Callable[[Twins], SignedCommitment]:
    def changed(twins: Twins) -> SignedCommitment:
        client, payload, signature = support.commitment(twins, idle(twins))
        return client, payload, change(signature)

    return changed


def _honest_commitment(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, idle(twins))


def _commitment_of_unknown(twins: Twins) -> SignedCommitment:
    return (ClientId(twins.state.deployment.clients), *_honest_commitment(twins)[1:])


def _second_commitment(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, min(twins.state.committed))


def _commitment_by_another(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, idle(twins), key=twins.state.committee[0])


def _commitment_for_another_round(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, idle(twins), round_number=twins.state.round + 1)


def _votes_of_another(twins: Twins) -> Outcome:
    accused, other = twins.state.committee[:2]
    return twins.report(accused, *support.equivocation(twins, other))


def _second_vote_damaged(twins: Twins) -> Outcome:
    accused = twins.state.committee[0]
    first, (vote, signature) = support.equivocation(twins, accused)
    return twins.report(accused, first, (vote, support.damaged(signature)))


def _votes_of_another_contract(twins: Twins) -> Outcome:
    accused, elsewhere = twins.state.committee[0], replace(twins.state.domain, chain_id=1)
    first, (vote, _) = support.equivocation(twins, accused)
    return twins.report(accused, first, (vote, sign(twins.keys[accused], elsewhere, vote)))


def _one_vote_twice(twins: Twins) -> Outcome:
    accused = twins.state.committee[0]
    first, _ = support.equivocation(twins, accused)
    return twins.report(accused, first, first)


def _one_vote_with_both_signatures(twins: Twins) -> Outcome:
    accused = twins.state.committee[0]
    first, (vote, signature) = support.equivocation(twins, accused)
    return twins.report(accused, first, (vote, support.high_s(signature)))


def _report_of_unknown(twins: Twins) -> Outcome:
    unknown = ClientId(twins.state.deployment.clients)
    return twins.report(unknown, *support.equivocation(twins, ClientId(0)))


FAULTS = (
    Fault(
        "a commitment for another round",
        errors.WrongRoundError,
        lambda t: t.commit(t.state.round + 1, [_honest_commitment(t)]),
    ),
    Fault(
        "a commitment for the round before",
        errors.WrongRoundError,
        lambda t: t.commit(t.state.round - 1, [_honest_commitment(t)]),
    ),
    Fault("no commitment", errors.NoCommitmentsError, _committing()),
    Fault("a commitment of nobody", errors.UnknownClientError, _committing(_commitment_of_unknown)),
    Fault("a second commitment", errors.RepeatedCommitmentError, _committing(_second_commitment)),
    Fault(
        "one commitment twice",
        errors.RepeatedCommitmentError,
        _committing(_honest_commitment, _honest_commitment),
    ),
    Fault(
        "a commitment with high s",
        errors.SignatureNotCanonicalError,
        _committing(_signed_again(support.high_s)),
    ),
    Fault(
        "a damaged commitment",
        errors.CommitmentNotSignedError,
        _committing(_signed_again(support.damaged)),
    ),
    Fault(
        "a commitment with no signature",
        errors.CommitmentNotSignedError,
        _committing(_signed_again(lambda _: bytes(64) + b"\x1b")),
    ),
    Fault(
        "a commitment with the wrong parity",
        errors.CommitmentNotSignedError,
        _committing(_signed_again(lambda s: s[:64] + bytes([55 - s[64]]))),
    ),
    Fault(
        "a commitment signed by another",
        errors.CommitmentNotSignedError,
        _committing(_commitment_by_another),
    ),
    Fault(
        "a commitment signed for another round",
        errors.CommitmentNotSignedError,
        _committing(_commitment_for_another_round),
    ),
    Fault(
        "an end before the deadline",
        errors.DeadlineNotReachedError,
        lambda t: t.abandon(t.state.round),
    ),
    Fault(
        "an end of another round", errors.WrongRoundError, lambda t: t.abandon(t.state.round + 1)
    ),
    Fault("a report of nobody", errors.UnknownClientError, _report_of_unknown),
    Fault("one vote as two", errors.VotesEqualError, _one_vote_twice),
    Fault("votes of another client", errors.VoteNotSignedError, _votes_of_another),
    Fault("a damaged second vote", errors.VoteNotSignedError, _second_vote_damaged),
    Fault("a second vote for another chain", errors.VoteNotSignedError, _votes_of_another_contract),
    Fault(
        "a second vote with high s",
        errors.SignatureNotCanonicalError,
        _one_vote_with_both_signatures,
    ),
    Fault(
        "a registration after the last client",
        errors.NotRegisteringError,
        lambda t: t.register((1 << 64 | 1,), NO_DIGEST),
    ),
)


def commit_of_banned(twins: Twins) -> Outcome:
    client = idle(twins)
    twins.report(client, *support.equivocation(twins, client))
    return _committing(lambda t: support.commitment(t, client))(twins)


def second_ban(twins: Twins) -> Outcome:
    client = idle(twins)
    votes = support.equivocation(twins, client, VoteKind.REPLY)
    assert isinstance(twins.report(client, *votes), tuple)
    return twins.report(client, *votes)


def ranking_with_banned(twins: Twins) -> Outcome:
    found = honest(twins)
    client = encoding.word_client(found.decision.ranking[0])
    twins.report(client, *support.equivocation(twins, client))
    return twins.decide(found)


def banned_replies(twins: Twins) -> Outcome:
    found = honest(twins)
    signers = found.certificates[0].signers
    place = (signers & -signers).bit_length() - 1
    member = twins.state.committee[place]
    twins.report(member, *support.equivocation(twins, member))
    return twins.decide(found)


def banned_primary(twins: Twins) -> Outcome:
    found = honest(twins)
    member = twins.state.committee[primary(twins, found.certificates[0].view)]
    twins.report(member, *support.equivocation(twins, member))
    return twins.decide(found)


BAN_FAULTS = (
    Fault("a commitment of a banned client", errors.ClientBannedError, commit_of_banned),
    Fault("a second ban", errors.ClientBannedError, second_ban),
    Fault("a banned client in the ranking", errors.NoCommitmentError, ranking_with_banned),
    Fault("a reply of a banned member", errors.MemberBannedError, banned_replies),
    Fault("a request of a banned primary", errors.MemberBannedError, banned_primary),
)
"""Wrong transactions that come after a ban: sending them bans somebody first."""
