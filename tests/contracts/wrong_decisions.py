"""Wrong decisions, each a small change of the honest one, with the refusal that it meets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ledger.protocol import encoding
from ledger.protocol.errors import RefusalCode
from ledger.protocol.ledger_state import SubmittedCertificate
from ledger.protocol.signing import sign
from ledger.protocol.types import NO_DIGEST, Phase
from tests.contracts import support
from tests.contracts.faults import Fault, honest, idle, primary, rankable
from tests.contracts.twins import Outcome, Proposal, Twins, digest_of

INFINITE_WORD = encoding.INFINITY_BITS << 32


def _deciding(change: Callable[[Twins, Proposal], Proposal]) -> Callable[[Twins], Outcome]:
    return lambda twins: twins.decide(change(twins, honest(twins)))


def _ranked(
    change: Callable[[Twins, tuple[int, ...]], tuple[int, ...]],
) -> Callable[[Twins], Outcome]:
    """Send a decision on a changed ranking, certified by the whole committee."""

    def act(twins: Twins) -> Outcome:
        ranking = change(twins, support.ranking_of(rankable(twins)))
        return twins.decide(support.proposal(twins, ranking))

    return act


def _certificate(
    change: Callable[[Twins, SubmittedCertificate], SubmittedCertificate],
    phase: Phase = Phase.AGGREGATION,
) -> Callable[[Twins], Outcome]:
    def act(twins: Twins) -> Outcome:
        found = honest(twins)
        certificates = list(found.certificates)
        certificates[phase - 1] = change(twins, certificates[phase - 1])
        return twins.decide(replace(found, certificates=(certificates[0], certificates[1])))

    return act


def _resigned(phase: Phase, **fields: object) -> Callable[[Twins], Outcome]:
    """Send an honest decision in which one certificate is for another vote."""

    def act(twins: Twins) -> Outcome:
        found = honest(twins)
        view = support.able_view(twins, phase)
        vote = support.request(twins, found.decision, phase, view)
        certificates = list(found.certificates)
        certificates[phase - 1] = support.certificate(twins, replace(vote, **fields))  # type: ignore[arg-type]
        return twins.decide(replace(found, certificates=(certificates[0], certificates[1])))

    return act


def _swapped(field: str) -> Callable[[Twins], Outcome]:
    return _deciding(
        lambda _, p: replace(
            p,
            decision=replace(p.decision, **{field: digest_of("another")}),  # type: ignore[arg-type]
        )
    )


def _first_reply(change: Callable[[bytes], bytes]) -> Callable[[Twins], Outcome]:
    return _certificate(lambda _, c: replace(c, replies=(change(c.replies[0]), *c.replies[1:])))


def _with_last_client(ranking: tuple[int, ...], client: int) -> tuple[int, ...]:
    return (*ranking[:-1], ranking[-1] >> 32 << 32 | client)


def _with_member(place: int, member: int) -> Callable[[Twins, tuple[int, ...]], tuple[int, ...]]:
    def changed(twins: Twins, ranking: tuple[int, ...]) -> tuple[int, ...]:
        at = place % len(ranking)
        word = ranking[at] >> 32 << 32 | twins.state.committee[member]
        return (*ranking[:at], word, *ranking[at + 1 :])

    return changed


def _request_from_another_place(twins: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    vote = support.request(twins, honest(twins).decision, Phase.AGGREGATION, c.view)
    committee = twins.state.committee
    place = (primary(twins, c.view) + 1) % len(committee)
    return replace(c, request=sign(twins.keys[committee[place]], twins.state.domain, vote))


def _requests_as_replies(twins: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    return replace(c, replies=(c.request, *c.replies[1:]))


def _one_reply_twice(_: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    return replace(c, replies=(c.replies[0], c.replies[0], *c.replies[2:]))


def _primary_among_signers(twins: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    return replace(c, signers=c.signers | 1 << primary(twins, c.view))


def _one_signer_less(_: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    return replace(c, signers=c.signers & (c.signers - 1), replies=c.replies[1:])


def _all_as_signers(twins: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    everybody = (1 << len(twins.state.committee)) - 1
    return replace(c, signers=everybody ^ 1 << primary(twins, c.view))


def _signer_out_of_range(twins: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    return replace(c, signers=c.signers | 1 << len(twins.state.committee))


def _signer_far_out_of_range(_: Twins, c: SubmittedCertificate) -> SubmittedCertificate:
    return replace(c, signers=c.signers | 1 << 255)


WRONG_DECISIONS = (
    Fault("a decision of another round", RefusalCode.WRONG_ROUND,
     _deciding(lambda _, p: replace(p, round=p.round + 1))),
    Fault("another committee", RefusalCode.WRONG_COMMITTEE,
     _deciding(lambda _, p: replace(
         p, decision=replace(p.decision, committee=p.decision.committee[::-1])))),
    Fault("no committee", RefusalCode.WRONG_COMMITTEE,
     _deciding(lambda _, p: replace(p, decision=replace(p.decision, committee=())))),
    Fault("one client too many in the ranking", RefusalCode.RANKING_TOO_LONG,
     _ranked(lambda t, r: (*r, *range(r[-1] + 1, r[-1] + 2 + t.state.deployment.trainers)))),
    Fault("too short a ranking", RefusalCode.RANKING_TOO_SHORT,
     _ranked(lambda t, r: r[: t.state.deployment.members - 1])),
    Fault("no ranking", RefusalCode.RANKING_TOO_SHORT, _ranked(lambda _, r: r[:0])),
    Fault("a trainer less while there is time", RefusalCode.RANKING_TOO_EARLY,
     _ranked(lambda _, r: r[:-1])),
    Fault("a ranking in another order", RefusalCode.RANKING_NOT_SORTED,
     _ranked(lambda _, r: (r[1], r[0], *r[2:]))),
    Fault("one word twice", RefusalCode.RANKING_NOT_SORTED, _ranked(lambda _, r: (*r[:-1], r[-2]))),
    Fault("an infinite distance", RefusalCode.DISTANCE_NOT_FINITE,
     _ranked(lambda _, r: (*r[:-1], INFINITE_WORD | r[-1] & 0xFFFF_FFFF))),
    Fault("a distance of more than 64 bits", RefusalCode.DISTANCE_NOT_FINITE,
     _ranked(lambda _, r: (*r[:-1], 1 << 255 | r[-1]))),
    Fault("nobody in the ranking", RefusalCode.UNKNOWN_CLIENT,
     _ranked(lambda t, r: _with_last_client(r, t.state.deployment.clients))),
    Fault("the largest word in the ranking", RefusalCode.UNKNOWN_CLIENT,
     _ranked(lambda _, r: (*r[:-1], 2**256 - 1))),
    *(Fault(f"a member that has committed, at place {place} of the ranking",
     RefusalCode.MEMBER_RANKED,
     _ranked(_with_member(place, member))) for place in range(6) for member in (0, -1)),
    Fault("a client twice in the ranking", RefusalCode.REPEATED_CLIENT,
     _ranked(lambda _, r: _with_last_client(r, r[0] & 0xFFFF_FFFF))),
    Fault("a client without a commitment", RefusalCode.NO_COMMITMENT,
     _ranked(lambda t, r: _with_last_client(r, idle(t)))),
    Fault("a set that does not follow from the ranking", RefusalCode.WRONG_AGGREGATION_SET,
     _resigned(Phase.AGGREGATION, set_digest=digest_of("another set"))),
    Fault("the certificates in the other order", RefusalCode.WRONG_AGGREGATION_SET,
     _deciding(lambda _, p: replace(p, certificates=p.certificates[::-1]))),
    Fault("candidates that the ranking does not give", RefusalCode.WRONG_CANDIDATES,
     _resigned(Phase.ELECTION, set_digest=digest_of("other candidates"))),
    *(Fault(f"another {field} than the one voted on", RefusalCode.REQUEST_NOT_SIGNED,
     _swapped(field)) for field in ("base", "model", "updates_root", "scores_root", "reveal",
     "record")),
    Fault("an election without the aggregation's result", RefusalCode.REQUEST_NOT_SIGNED,
     _resigned(Phase.ELECTION, result=NO_DIGEST)),
    Fault("an aggregation for another base than the election's", RefusalCode.REQUEST_NOT_SIGNED,
     _resigned(Phase.AGGREGATION, base=digest_of("another base"))),
    Fault("an election for another base than the aggregation's", RefusalCode.REQUEST_NOT_SIGNED,
     _resigned(Phase.ELECTION, base=digest_of("another base"))),
    Fault(
        "a request of the other phase",
        RefusalCode.REQUEST_NOT_SIGNED,
        _certificate(
            lambda t, _: support.certificate(
                t,
                replace(
                    support.request(t, honest(t).decision, Phase.ELECTION, 0),
                    phase=Phase.AGGREGATION,
                ),
            ),
            Phase.ELECTION,
        ),
    ),
    Fault("a request by another member", RefusalCode.REQUEST_NOT_SIGNED,
     _certificate(_request_from_another_place)),
    Fault("a damaged request", RefusalCode.REQUEST_NOT_SIGNED,
     _certificate(lambda _, c: replace(c, request=support.damaged(c.request)))),
    Fault("a request with high s", RefusalCode.SIGNATURE_NOT_CANONICAL,
     _certificate(lambda _, c: replace(c, request=support.high_s(c.request)))),
    Fault("another view than the one signed", RefusalCode.REQUEST_NOT_SIGNED,
     _certificate(lambda _, c: replace(c, view=c.view + 1))),
    Fault("a signer beyond the committee", RefusalCode.SIGNERS_OUT_OF_RANGE,
     _certificate(_signer_out_of_range)),
    Fault("the last bit as a signer", RefusalCode.SIGNERS_OUT_OF_RANGE,
     _certificate(_signer_far_out_of_range, Phase.ELECTION)),
    Fault("the primary as a signer", RefusalCode.PRIMARY_REPLIES,
     _certificate(_primary_among_signers)),
    Fault("one reply too few", RefusalCode.QUORUM_NOT_REACHED, _certificate(_one_signer_less)),
    Fault("no reply", RefusalCode.QUORUM_NOT_REACHED,
     _certificate(lambda _, c: replace(c, signers=0, replies=()), Phase.ELECTION)),
    Fault("a signer without a signature", RefusalCode.SIGNATURE_COUNT,
     _certificate(_all_as_signers)),
    Fault("a signature too many", RefusalCode.SIGNATURE_COUNT,
     _certificate(lambda _, c: replace(c, replies=(*c.replies, c.replies[0])))),
    Fault("a damaged reply", RefusalCode.REPLY_NOT_SIGNED, _first_reply(support.damaged)),
    Fault("a reply with high s", RefusalCode.SIGNATURE_NOT_CANONICAL, _first_reply(support.high_s)),
    Fault("one reply twice", RefusalCode.REPLY_NOT_SIGNED, _certificate(_one_reply_twice)),
    Fault("a request as a reply", RefusalCode.REPLY_NOT_SIGNED, _certificate(_requests_as_replies)),
    Fault("replies in another order", RefusalCode.REPLY_NOT_SIGNED,
     _certificate(lambda _, c: replace(c, replies=c.replies[::-1]), Phase.ELECTION)),
)  # fmt: skip
