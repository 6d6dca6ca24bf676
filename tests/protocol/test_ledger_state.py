"""The words of the protocol, its refusals, and what deployments and accusations are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.protocol import encoding, errors
from ledger.protocol.ledger_state import (
    EquivocationReport,
    SignedStatement,
    StatementKind,
    deployment_of,
    registry_batches,
)
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Phase,
    Quorum,
    RegisteredClient,
    Scores,
    Vote,
    VoteKind,
)
from tests.protocol.support import BASE, PENCIL, SEED, registry_of

CONFIG, MODEL = encoding.sha256(b"configuration"), encoding.sha256(b"w_1")
VOTE = Vote(VoteKind.REPLY, 1, Phase.ELECTION, 3, BASE, SEED, SEED)
SCORES = Scores(1, ClientId(4), BASE, SEED, SEED)


def test_a_deployment_fixes_sizes_rules_and_clients() -> None:
    parameters = replace(
        PENCIL, strategy=2, quorum=Quorum.BFT, beacon=Beacon.BLOCK, commit_blocks=3
    )
    deployment, batches = deployment_of(parameters, CONFIG, registry_of(9), MODEL)
    words = tuple(encoding.registry_word(client) for client in registry_of(9))
    assert batches == ((words, NO_DIGEST),)
    assert deployment.registry == encoding.registry_digest(words, NO_DIGEST)
    sizes = (deployment.clients, deployment.trainers, deployment.members, deployment.rounds)
    assert sizes == (9, 6, 3, 2)
    assert (deployment.aggregation_ppm, deployment.form) == (500_000, AcceptanceForm.LAST)
    assert (deployment.commit_blocks, deployment.deadline_blocks) == (3, 10)
    assert (deployment.replies, deployment.beacon) == (1, Beacon.BLOCK)
    assert (deployment.config, deployment.model) == (CONFIG, MODEL)


def test_many_clients_are_registered_in_batches_of_256() -> None:
    first, batches = registry_batches(range(600))
    assert [len(words) for words, _ in batches] == [256, 256, 88]
    assert first == encoding.registry_digest(*batches[0])
    assert batches[0][1] == encoding.registry_digest(*batches[1])
    assert batches[1][1] == encoding.registry_digest(*batches[2])
    assert batches[2][1] == NO_DIGEST
    assert registry_batches([]) == (NO_DIGEST, ())


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        (VOTE, StatementKind.REPLY),
        (replace(VOTE, kind=VoteKind.REQUEST), StatementKind.REQUEST),
        (SCORES, StatementKind.SCORES),
    ],
)
def test_an_accusation_knows_what_was_signed_twice(
    statement: Vote | Scores, kind: StatementKind
) -> None:
    signed = SignedStatement(statement, b"")
    assert EquivocationReport(ClientId(4), signed, signed).kind is kind
    assert [kind.value for kind in StatementKind] == [1, 2, 3]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (VOTE, replace(VOTE, view=4)),
        (VOTE, replace(VOTE, round=2)),
        (VOTE, replace(VOTE, phase=Phase.AGGREGATION)),
        (VOTE, replace(VOTE, kind=VoteKind.REQUEST)),
        (VOTE, replace(VOTE, base=SEED)),
        (VOTE, SCORES),
        (SCORES, replace(SCORES, round=2)),
        (SCORES, replace(SCORES, base=SEED)),
        (SCORES, replace(SCORES, member=ClientId(5))),
    ],
)
def test_statements_for_two_places_are_no_equivocation(
    first: Vote | Scores, second: Vote | Scores
) -> None:
    other = replace(first, result=BASE) if isinstance(first, Vote) else replace(first, digest=BASE)
    EquivocationReport(ClientId(4), SignedStatement(first, b""), SignedStatement(other, b""))
    with pytest.raises(ValueError, match="not of one kind, round, phase, view and base"):
        EquivocationReport(ClientId(4), SignedStatement(first, b""), SignedStatement(second, b""))


def test_a_vector_names_its_member_so_only_it_is_accused() -> None:
    signed = SignedStatement(SCORES, b"")
    with pytest.raises(ValueError, match="are not the accused's"):
        EquivocationReport(ClientId(5), signed, signed)


CLIENT = RegisteredClient(Address(bytes(20)), 1)
BALLOT = Vote(VoteKind.REPLY, 3, Phase.ELECTION, 2, BASE, SEED, SEED)


def test_a_ban_counts_from_the_round_after_it() -> None:
    banned = replace(CLIENT, banned_in=3)
    assert [banned.is_banned_in(number) for number in (1, 2, 3, 4, 5)] == [False] * 3 + [True] * 2
    assert not any(CLIENT.is_banned_in(number) for number in (0, 1, 9))


@pytest.mark.parametrize(
    "other",
    [
        replace(BALLOT, kind=VoteKind.REQUEST),
        replace(BALLOT, round=4),
        replace(BALLOT, phase=Phase.AGGREGATION),
        replace(BALLOT, view=3),
        replace(BALLOT, base=SEED),
    ],
)
def test_a_vote_elsewhere_is_no_second_vote(other: Vote) -> None:
    assert other.slot != BALLOT.slot


def test_a_refusal_says_what_the_contract_says() -> None:
    refusal = errors.WrongRoundError()
    assert str(refusal) == refusal.reason == "committee_ledger: wrong round"


def test_a_refusal_can_add_its_circumstances() -> None:
    refusal = errors.WrongRoundError("round 3 is open")
    assert str(refusal) == "committee_ledger: wrong round (round 3 is open)"
    assert refusal.reason == "committee_ledger: wrong round"


def test_every_refusal_has_a_reason_of_its_own() -> None:
    leaves = errors.ProtocolRefusal.__subclasses__()
    assert len({leaf.fact for leaf in leaves}) == len(leaves)
    assert set(errors.REFUSALS.values()) == set(leaves)
    assert all(errors.REFUSALS[leaf().reason] is leaf for leaf in leaves)
    assert all(leaf.fact for leaf in leaves)


def test_every_error_is_in_one_tree_and_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    leaves = errors.CmflError.__subclasses__()
    for leaf in (leaf for leaf in leaves if leaf.__module__ == errors.__name__):
        assert leaf.__name__ in drawn
