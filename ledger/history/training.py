"""Coverage of a run's training: which updates auditors have repeated, by their attestations.

No decision and no step of an audit rests on it: an attestation is an auditor's word. Auditors that
disagree are shown side by side (docs/reference/protocol/environments.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, cast

from ledger.history.fields import Answer, Client, Count, Digest32, Eip55, Response, RoundNumber, doc
from ledger.history.round import RoundStatus
from ledger.protocol.documents.envelope import Attestation, EnvelopeKind
from ledger.protocol.encoding import checksum, to_hex
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import is_signed_by
from ledger.protocol.training_replay import ReplayVerdict
from ledger.protocol.types import ClientId, Digest, Domain
from ledger.storage.mailbox import Mailbox

if TYPE_CHECKING:
    from ledger.history.history import FoldedHistory


CoverageVerdict = Literal["same", "other", "disputed", "none"]


class AttestationEntry(Response):
    """The verdict of an auditor who has repeated an update; it is the auditor's word alone."""

    auditor: Eip55
    verdict: Literal["same", "other"]
    environment: Annotated[
        str,
        doc("environment used", examples=["torch 2.13.0, plain, x86_64 avx2, cpu, 1 thread"]),
    ]
    witness: Annotated[Digest32, doc("digest of the losses of all local steps, withheld")]


class AttestedUpdate(Response):
    """An update that the chain has, and the attestations about it."""

    round: RoundNumber
    client: Client
    verdict: Annotated[
        CoverageVerdict,
        doc("joint verdict: disputed if attestations differ, none without any"),
    ]
    attestations: Annotated[
        list[AttestationEntry], doc("genuine ones, by auditor; an auditor may have several")
    ]


class VerdictCounts(Response):
    """Number of updates by verdict."""

    same: Count
    other: Count
    disputed: Count
    none: Count


class TrainingAnswer(Answer):
    """Coverage of some ended rounds: which updates auditors have repeated."""

    first: Annotated[Count, doc("first round that is covered here")]
    last: Annotated[Count, doc("last one; below `first` where none has ended")]
    ended: Annotated[Count, doc("number of rounds that have ended")]
    next_from: Annotated[
        RoundNumber | None, doc("first round that was asked for and is not covered here; else null")
    ]
    clients: Annotated[Count, doc("registered ones")]
    counts: VerdictCounts
    auditors: Annotated[list[Eip55], doc("auditors with attestations here")]
    updates: Annotated[list[AttestedUpdate], doc("ascending by round and client")]


def training_coverage(
    history: FoldedHistory,
    domain: Domain,
    mailbox: Mailbox,
    rounds: tuple[int | None, int | None] = (None, None),
    is_enough: Callable[[int], bool] = lambda _: False,
) -> TrainingAnswer:
    """Return the coverage of ended rounds; every commitment that counts is an update.

    `rounds` are first and last of them, None for all. If `is_enough`, called after each round with
    the number of updates so far, returns True, another call continues from `next_from` on.
    """
    ended = history.newest()
    if ended and history.some([ended])[0].status is RoundStatus.OPEN:
        ended -= 1
    first = 1 if rounds[0] is None else rounds[0]
    last = ended if rounds[1] is None else rounds[1]
    if rounds != (None, None) and not 1 <= first <= last <= ended:
        raise ConfigurationError(
            f"rounds {first}..{last}: must be first and last of the {ended} ended rounds"
        )
    updates: list[AttestedUpdate] = []
    covered = first - 1
    while covered < last and not (covered >= first and is_enough(len(updates))):
        covered += 1
        updates += _updates_of_round(history, domain, mailbox, covered)
    return _counted(
        {
            "first": first,
            "last": covered,
            "ended": ended,
            "next_from": covered + 1 if covered < last else None,
            "clients": history.fixed.clients,
            "counts": {"same": 0, "other": 0, "disputed": 0, "none": 0},
            "auditors": [],
            "updates": updates,
        }
    )


def counting_only(coverage: TrainingAnswer, auditors: Collection[str]) -> TrainingAnswer:
    """Return a coverage that counts the attestations of these EIP-55 addresses; of all if empty."""
    if not auditors:
        return coverage
    updates = []
    for each in coverage["updates"]:
        counted = [own for own in each["attestations"] if own["auditor"] in auditors]
        updates.append(_update(each["round"], each["client"], counted))
    return _counted({**coverage, "updates": updates})


def joined(pages: Sequence[TrainingAnswer]) -> TrainingAnswer:
    """Return the coverage of consecutive rounds that several calls have given."""
    updates = [update for page in pages for update in page["updates"]]
    first = pages[0]["first"]
    answer = _counted({**pages[-1], "first": first, "next_from": None, "updates": updates})
    answer.pop("as_of", None)  # each page has its own
    return answer


def _counted(coverage: TrainingAnswer) -> TrainingAnswer:
    verdicts = Counter[str](update["verdict"] for update in coverage["updates"])
    auditors = {each["auditor"] for own in coverage["updates"] for each in own["attestations"]}
    counts = {name: verdicts[name] for name in VerdictCounts.__annotations__}
    coverage["counts"] = cast("VerdictCounts", counts)
    coverage["auditors"] = sorted(auditors, key=str.lower)
    return coverage


def attestations_of_round(
    mailbox: Mailbox, domain: Domain, run: Digest, round_number: int
) -> Sequence[tuple[ClientId, Attestation]]:
    """Return the genuine attestations of a round, by auditor, each with the client it is about."""
    found = set()
    for envelope in mailbox.listed(domain, round_number, EnvelopeKind.ATTESTATION):
        body = envelope.body
        assert isinstance(body, Attestation)
        if is_genuine(body, domain, run, round_number, envelope.client):
            found.add((envelope.client, body))
    return sorted(found, key=lambda each: (each[1].auditor, each[1].verdict, each[1].witness))


def is_genuine(
    attestation: Attestation, domain: Domain, run: Digest, round_number: int, client: ClientId
) -> bool:
    """Say whether an attestation is of a run, and its auditor's own."""
    statement = attestation.statement(round_number, client)
    signed = attestation.auditor, domain, statement, attestation.signature
    return attestation.run == run and is_signed_by(*signed)


def _updates_of_round(
    history: FoldedHistory, domain: Domain, mailbox: Mailbox, number: int
) -> list[AttestedUpdate]:
    round_ = history.round(number)
    assert round_ is not None, "it has ended"
    entries = {client: list[AttestationEntry]() for client in sorted(round_.counted)}
    for client, attestation in attestations_of_round(mailbox, domain, history.fixed.config, number):
        if client in entries:
            entry: AttestationEntry = {
                "auditor": checksum(attestation.auditor),
                "verdict": "same" if attestation.verdict is ReplayVerdict.SAME else "other",
                "environment": str(attestation.environment),
                "witness": to_hex(attestation.witness),
            }
            entries[client].append(entry)
    mailbox.forget(domain, number + 1)
    return [_update(number, client, found) for client, found in entries.items()]


def _update(number: int, client: int, attestations: list[AttestationEntry]) -> AttestedUpdate:
    verdicts: set[CoverageVerdict] = {attestation["verdict"] for attestation in attestations}
    verdict: CoverageVerdict = next(iter(verdicts), "none")
    if len(verdicts) > 1:
        verdict = "disputed"
    own = {"round": number, "client": int(client), "verdict": verdict}
    return cast("AttestedUpdate", {**own, "attestations": attestations})
