"""Wrong transactions, each a small change of an honest one, with the refusal that it meets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ledger.protocol import encoding
from ledger.protocol.errors import RefusalCode
from ledger.protocol.inputs import primary_seat
from ledger.protocol.ledger_state import EquivocationReport, SignedStatement, StatementKind
from ledger.protocol.signing import sign
from ledger.protocol.types import NO_DIGEST, AcceptanceForm, ClientId, Phase, SignedCommitment
from tests.contracts import support
from tests.contracts.twins import Outcome, Proposal, Twins, digest_of


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong transaction in a round in which all active clients have committed, not all."""

    sentence: str
    refusal: RefusalCode
    act: Callable[[Twins], Outcome]
    form: AcceptanceForm = AcceptanceForm.FIRST


def rankable(twins: Twins) -> tuple[ClientId, ...]:
    """Return up to n clients with a commitment who are no members, ascending."""
    able = sorted(twins.state.committed - set(twins.state.committee))
    return tuple(able[: twins.state.deployment.trainers])


def honest(twins: Twins) -> Proposal:
    return support.proposal(twins, support.ranking_of(rankable(twins)))


def idle(twins: Twins) -> ClientId:
    """Return a client without commitment who is no member; a member if there is none."""
    state = twins.state
    everybody = map(ClientId, range(state.deployment.clients))
    idle = [client for client in everybody if client not in state.committed]
    return next((client for client in idle if client not in state.committee), idle[0])


def primary(twins: Twins, view: int) -> int:
    state = twins.state
    return primary_seat(state.seed, Phase.AGGREGATION, view, len(state.committee))


def _committing(*changes: Callable[[Twins], SignedCommitment]) -> Callable[[Twins], Outcome]:
    return lambda twins: twins.commit(twins.state.round, [change(twins) for change in changes])


def _signed_again(change: Callable[[bytes], bytes]) -> Callable[[Twins], SignedCommitment]:
    def changed(twins: Twins) -> SignedCommitment:
        signed = support.commitment(twins, idle(twins))
        return replace(signed, signature=change(signed.signature))

    return changed


def _honest_commitment(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, idle(twins))


def _commitment_of_unknown(twins: Twins) -> SignedCommitment:
    signed = _honest_commitment(twins)
    unknown = ClientId(twins.state.deployment.clients)
    return replace(signed, commitment=replace(signed.commitment, client=unknown))


def _second_commitment(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, min(twins.state.committed))


def _commitment_by_another(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, idle(twins), key=twins.state.committee[0])


def _commitment_for_another_round(twins: Twins) -> SignedCommitment:
    return support.commitment(twins, idle(twins), round_number=twins.state.round + 1)


def _another_word(twins: Twins) -> SignedCommitment:
    signed = _honest_commitment(twins)
    return replace(signed, commitment=replace(signed.commitment, commitment=digest_of("another")))


def _copied_from_another(twins: Twins) -> SignedCommitment:
    copied = _second_commitment(twins)
    return replace(copied, commitment=replace(copied.commitment, client=idle(twins)))


def _late_commitment(twins: Twins) -> Outcome:
    twins.close_commitments()
    return _committing(_honest_commitment)(twins)


def _late_and_of_unknown(twins: Twins) -> Outcome:
    twins.close_commitments()
    return _committing(_commitment_of_unknown)(twins)


def _reporting(
    change: Callable[[Twins, EquivocationReport], EquivocationReport],
    kind: StatementKind = StatementKind.REQUEST,
) -> Callable[[Twins], Outcome]:
    """Report a member, with a proof that is changed."""

    def act(twins: Twins) -> Outcome:
        accused = twins.state.committee[0]
        return twins.report(change(twins, support.equivocation(twins, accused, kind)))

    return act


def _first(
    change: Callable[[Twins, SignedStatement], SignedStatement],
) -> Callable[[Twins, EquivocationReport], EquivocationReport]:
    return lambda twins, report: replace(report, first=change(twins, report.first))


def _second(
    change: Callable[[Twins, SignedStatement], SignedStatement],
) -> Callable[[Twins, EquivocationReport], EquivocationReport]:
    return lambda twins, report: replace(report, second=change(twins, report.second))


def _damaged(_: Twins, signed: SignedStatement) -> SignedStatement:
    return replace(signed, signature=support.damaged(signed.signature))


def _with_high_s(_: Twins, signed: SignedStatement) -> SignedStatement:
    return replace(signed, signature=support.high_s(signed.signature))


def _by_another(twins: Twins, signed: SignedStatement) -> SignedStatement:
    key = twins.keys[twins.state.committee[1]]
    return replace(signed, signature=sign(key, twins.state.domain, signed.statement))


def _for_another_chain(twins: Twins, signed: SignedStatement) -> SignedStatement:
    elsewhere = replace(twins.state.domain, chain_id=1)
    key = twins.keys[twins.state.committee[0]]
    return replace(signed, signature=sign(key, elsewhere, signed.statement))


def _one_statement_twice(twins: Twins, report: EquivocationReport) -> EquivocationReport:
    return replace(report, second=report.first)


def _one_statement_with_both_signatures(
    twins: Twins, report: EquivocationReport
) -> EquivocationReport:
    signed = replace(report.first, signature=support.high_s(report.first.signature))
    return replace(report, second=signed)


def _scores_for_other_clients(twins: Twins, report: EquivocationReport) -> EquivocationReport:
    fields = {"clients": digest_of("others")}
    second = support.statement(twins, report.client, StatementKind.SCORES, 2, **fields)
    return replace(report, second=second)


def _one_vector_for_other_clients(twins: Twins, report: EquivocationReport) -> EquivocationReport:
    fields = {"clients": digest_of("others")}
    second = support.statement(twins, report.client, StatementKind.SCORES, 1, **fields)
    return replace(report, second=second)


def _report_of_unknown(twins: Twins) -> Outcome:
    unknown = ClientId(twins.state.deployment.clients)
    return twins.report(replace(support.equivocation(twins, ClientId(0)), client=unknown))


def _honest_report(twins: Twins) -> Outcome:
    return twins.report(support.equivocation(twins, twins.state.committee[0]))


def second_ban(twins: Twins) -> Outcome:
    """Report a client that is banned already, in this round."""
    client = idle(twins)
    report = support.equivocation(twins, client, StatementKind.REPLY)
    # Where everybody else is active, whoever is idle has been banned before.
    is_first = not twins.state.registry[client].banned_in
    assert isinstance(twins.report(report), tuple) is is_first
    return twins.report(report)


COMMITMENT_FAULTS = (
    Fault("a commitment for another round", RefusalCode.WRONG_ROUND,
     lambda t: t.commit(t.state.round + 1, [_honest_commitment(t)])),
    Fault("a commitment for the round before", RefusalCode.WRONG_ROUND,
     lambda t: t.commit(t.state.round - 1, [_honest_commitment(t)])),
    Fault("a commitment after the window", RefusalCode.COMMITMENTS_CLOSED, _late_commitment),
    Fault("a late one of nobody", RefusalCode.COMMITMENTS_CLOSED, _late_and_of_unknown),
    Fault("no commitment", RefusalCode.NO_COMMITMENTS, _committing()),
    Fault("one of nobody", RefusalCode.UNKNOWN_CLIENT, _committing(_commitment_of_unknown)),
    Fault("a second commitment", RefusalCode.NOTHING_TAKEN, _committing(_second_commitment)),
    Fault("two second commitments", RefusalCode.NOTHING_TAKEN,
     _committing(_second_commitment, _second_commitment)),
    Fault("nobody after a second commitment", RefusalCode.UNKNOWN_CLIENT,
     _committing(_second_commitment, _commitment_of_unknown)),
    Fault("a commitment with high s", RefusalCode.SIGNATURE_NOT_CANONICAL,
     _committing(_signed_again(support.high_s))),
    Fault("a damaged commitment", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_signed_again(support.damaged))),
    Fault("a damaged commitment after a second one", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_second_commitment, _signed_again(support.damaged))),
    Fault("a commitment with no signature", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_signed_again(lambda _: bytes(64) + b"\x1b"))),
    Fault("a commitment with the wrong parity", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_signed_again(lambda s: s[:64] + bytes([55 - s[64]])))),
    Fault("a commitment signed by another", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_commitment_by_another)),
    Fault("another's commitment with its signature", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_copied_from_another)),
    Fault("another word than the one signed", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_another_word)),
    Fault("a commitment signed for another round", RefusalCode.COMMITMENT_NOT_SIGNED,
     _committing(_commitment_for_another_round)),
)  # fmt: skip

REPORT_FAULTS = (
    Fault("a report of nobody", RefusalCode.UNKNOWN_CLIENT, _report_of_unknown),
    Fault("one vote as two", RefusalCode.STATEMENTS_EQUAL, _reporting(_one_statement_twice)),
    Fault("one vote with two signatures", RefusalCode.STATEMENTS_EQUAL,
     _reporting(_one_statement_with_both_signatures)),
    Fault("one score vector as two", RefusalCode.STATEMENTS_EQUAL,
     _reporting(_one_statement_twice, StatementKind.SCORES)),
    Fault("score vectors for other clients", RefusalCode.SCORES_DIFFER,
     _reporting(_scores_for_other_clients, StatementKind.SCORES)),
    Fault("one score vector for other clients", RefusalCode.SCORES_DIFFER,
     _reporting(_one_vector_for_other_clients, StatementKind.SCORES)),
    Fault("votes of another client", RefusalCode.STATEMENT_NOT_SIGNED,
     _reporting(lambda t, r: replace(r, client=t.state.committee[1]))),
    *(
        Fault(f"{name} {kind.name} {sentence}", refusal, _reporting(part(change), kind))
        for kind in StatementKind
        for name, part in (("a first", _first), ("a second", _second))
        for sentence, refusal, change in (
            ("damaged", RefusalCode.STATEMENT_NOT_SIGNED, _damaged),
            ("by another", RefusalCode.STATEMENT_NOT_SIGNED, _by_another),
            ("for another chain", RefusalCode.STATEMENT_NOT_SIGNED, _for_another_chain),
            ("with high s", RefusalCode.SIGNATURE_NOT_CANONICAL, _with_high_s),
        )
    ),
    Fault("a second ban", RefusalCode.CLIENT_BANNED, second_ban),
)  # fmt: skip

OTHER_FAULTS = (
    Fault(
        "an end before the deadline",
        RefusalCode.DEADLINE_NOT_REACHED,
        lambda t: t.abandon(t.state.round),
    ),
    Fault(
        "an end of another round", RefusalCode.WRONG_ROUND, lambda t: t.abandon(t.state.round + 1)
    ),
    Fault(
        "a registration after the last client",
        RefusalCode.NOT_REGISTERING,
        lambda t: t.register((1 << 64 | 1,), NO_DIGEST),
    ),
)

EACH_TRANSACTION: tuple[tuple[str, Callable[[Twins], Outcome]], ...] = (
    ("clients", lambda t: t.register((1 << 64 | 1,), NO_DIGEST)),
    ("a commitment", _committing(_honest_commitment)),
    ("a decision", lambda t: t.decide(honest(t))),
    ("an end", lambda t: t.abandon(t.state.round)),
    ("a report", _honest_report),
)

RELAYED_FAULTS = tuple(
    Fault(
        f"{sentence} through a contract",
        RefusalCode.NOT_SENT_BY_ACCOUNT,
        partial(Twins.relayed, act=act),
    )
    for sentence, act in EACH_TRANSACTION
)

DELEGATED_FAULTS = tuple(
    Fault(
        f"{sentence} from a delegated account",
        RefusalCode.DELEGATED_ACCOUNT,
        partial(Twins.delegated, act=act),
    )
    for sentence, act in EACH_TRANSACTION
)
"""These need an embedded chain."""

FAULTS = COMMITMENT_FAULTS + REPORT_FAULTS + OTHER_FAULTS + RELAYED_FAULTS


def commit_of_banned(twins: Twins) -> Outcome:
    """Commit for a client that was banned in the round before."""
    client = idle(twins)
    twins.report(support.equivocation(twins, client))
    twins.decide(honest(twins))
    return _committing(lambda t: support.commitment(t, client))(twins)


def commit_of_banned_that_committed(twins: Twins) -> Outcome:
    """Commit twice for a client that was banned in this round, which is not told by its ban."""
    client = min(twins.state.committed)
    twins.report(support.equivocation(twins, client))
    return _committing(lambda t: support.commitment(t, client))(twins)


def banned_in_ranking(twins: Twins) -> Outcome:
    """Rank a client that was banned in the round before, and so could not commit."""
    client = idle(twins)
    twins.report(support.equivocation(twins, client))
    twins.decide(honest(twins))
    support.commit_all(twins, support.active_of(twins.state))
    *ranking, last = support.ranking_of(rankable(twins))
    return twins.decide(support.proposal(twins, (*ranking, last >> 32 << 32 | client)))


def banned_replies(twins: Twins) -> Outcome:
    """Elect somebody, ban it in the same round, and count its reply in the next."""
    member = _elect_and_ban(twins)
    place = twins.state.committee.index(member)
    return _decide_in_view(twins, place, is_primary=False)


def banned_primary(twins: Twins) -> Outcome:
    """Elect somebody, ban it in the same round, and take its request in the next."""
    member = _elect_and_ban(twins)
    place = twins.state.committee.index(member)
    return _decide_in_view(twins, place, is_primary=True)


def _elect_and_ban(twins: Twins) -> ClientId:
    found = honest(twins)
    middle = (len(found.decision.ranking) - twins.state.deployment.members) // 2
    member = encoding.word_client(found.decision.ranking[middle])
    assert isinstance(twins.report(support.equivocation(twins, member)), tuple)
    assert isinstance(twins.decide(found), tuple)
    support.commit_all(twins, support.active_of(twins.state))
    return member


def _decide_in_view(twins: Twins, banned: int, *, is_primary: bool) -> Outcome:
    """Decide with a banned member's vote, all others honest."""
    found, members = honest(twins), len(twins.state.committee)
    views = (v for v in range(99) if (primary(twins, v) == banned) == is_primary)
    view = next(views)
    vote = support.request(twins, found.decision, Phase.AGGREGATION, view)
    others = [place for place in range(members) if place != primary(twins, view)]
    needed = twins.state.deployment.replies
    repliers = others[:needed] if is_primary else sorted({banned, *others[:needed]})
    first = support.certificate(twins, vote, repliers=repliers)
    return twins.decide(replace(found, certificates=(first, found.certificates[1])))


BAN_FAULTS = (
    Fault("a commitment of a banned client", RefusalCode.CLIENT_BANNED, commit_of_banned),
    Fault("a second commitment of one banned in this round", RefusalCode.NOTHING_TAKEN,
     commit_of_banned_that_committed),
    Fault("a banned client in the ranking", RefusalCode.NO_COMMITMENT, banned_in_ranking),
    Fault("a reply of a banned member", RefusalCode.MEMBER_BANNED, banned_replies),
    Fault("a request of a banned primary", RefusalCode.MEMBER_BANNED, banned_primary),
)  # fmt: skip
"""Wrong transactions that come after a ban, in its round or in the next."""
