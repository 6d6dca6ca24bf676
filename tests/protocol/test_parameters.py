"""A deployment's parameters, each at its bound and past it, and the words of the protocol."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import encoding, errors, parameters
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ParametersError, RefusalCode
from ledger.protocol.ledger_state import (
    EquivocationReport,
    SignedStatement,
    StatementKind,
    deployment_of,
    registry_batches,
)
from ledger.protocol.parameters import (
    MILLION,
    Parameters,
    accepted_size,
    parts_per_million,
    require_layout,
    rounded_share,
)
from ledger.protocol.rules.distance import DIRECTION, SQUARED
from ledger.protocol.types import (
    NO_DIGEST,
    AcceptanceForm,
    Address,
    Beacon,
    ClientId,
    Phase,
    Quorum,
    Scores,
    Vote,
    VoteKind,
)
from tests.protocol.support import BASE, PENCIL, SEED, registry_of

TWENTY = Parameters(
    clients=20,
    active_ppm=500_000,
    committee_ppm=300_000,
    aggregation_ppm=400_000,
    rounds=1,
    dimension=1,
)


def made(**changes: Any) -> Parameters:
    return replace(TWENTY, **changes)


def refused(fact: str, **changes: Any) -> None:
    with pytest.raises(ParametersError, match=fact):
        made(**changes)


def test_a_committee_has_at_least_three_members() -> None:
    assert made(committee_ppm=250_000).members == 3  # 2.5
    refused("C = 2 members, and needs at least 3", committee_ppm=249_999)


def test_at_least_one_update_is_accepted() -> None:
    assert made(aggregation_ppm=0).accepted == 1
    refused("aggregation_ppm = -1 is not in", aggregation_ppm=-1)
    assert accepted_size(100_000, 4) == 1
    assert accepted_size(0, 100) == 1
    assert accepted_size(MILLION, 100) == 100


def test_the_contract_bounds_members_and_trainers() -> None:
    everyone: dict[str, Any] = {"active_ppm": MILLION, "committee_ppm": 400_000}
    assert made(**everyone, clients=400).members == parameters.MAX_MEMBERS == 160
    refused("members = 161 is over", **everyone, clients=402)
    few: dict[str, Any] = {"active_ppm": MILLION, "committee_ppm": 200_000}
    assert made(**few, clients=320).trainers == parameters.MAX_TRAINERS == 256
    refused("trainers = 257 is over", **few, clients=321)


def test_at_most_12288_clients_are_registered() -> None:
    few = {"active_ppm": 1_000}
    assert made(clients=parameters.MAX_CLIENTS, **few, committee_ppm=250_000).active == 12
    refused("clients = 12289 is not in", clients=parameters.MAX_CLIENTS + 1, **few)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("rounds", 1, parameters.MAX_ROUNDS),
        ("dimension", 1, parameters.MAX_DIMENSION),
        ("commit_blocks", 1, 62),
        ("deadline_blocks", 6, parameters.MAX_BLOCKS),
        ("view_seconds", 1, parameters.MAX_VIEW_SECONDS),
    ],
)
def test_whole_numbers_are_from_a_least_to_a_most(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(made(**{name: value}), name) == value
    for value in (least - 1, -1, most + 1):
        with pytest.raises(ParametersError, match="is not in"):
            made(**{name: value})


def test_between_window_and_deadline_is_a_block_to_decide_in() -> None:
    assert made(commit_blocks=4, deadline_blocks=6).deadline_blocks == 6
    refused(r"deadline_blocks = 5 is not in \[6, ", commit_blocks=4, deadline_blocks=5)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_the_server_rate_is_a_positive_number(rate: float) -> None:
    assert made(server_rate=5e-324).server_rate > 0
    refused("is not a positive number", server_rate=rate)


@pytest.mark.parametrize(
    ("name", "value", "known"), [("strategy", 4, "1, 2, 3"), ("payload", "x" * 900, "float32, q8")]
)
def test_a_rule_that_is_not_listed_is_refused(name: str, value: object, known: str) -> None:
    with pytest.raises(ParametersError, match=f"{name} = .* is none of {known}") as caught:
        made(**{name: value})
    assert len(str(caught.value)) < 300, "an error is one line"


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1, 1.5, 1.000001])
def test_no_share_is_outside_zero_and_one(rate: float) -> None:
    assert parts_per_million("omega", 1.0) == MILLION
    with pytest.raises(ParametersError, match=r"omega = .* is not in \[0, 1\]"):
        parts_per_million("omega", rate)


def test_beyond_six_decimals_a_share_is_rounded_half_up() -> None:
    assert parts_per_million("rate", 0.4500004) == 450_000
    assert parts_per_million("rate", 0.4500005) == 450_001
    assert parts_per_million("rate", 1 / 3) == 333_333
    assert parts_per_million("rate", 0.0000005) == 1
    assert parts_per_million("rate", 0.0000004999999) == 0
    assert parts_per_million("rate", 5e-324) == 0


@given(rate=st.floats())
def test_any_number_is_a_share_or_refused(rate: float) -> None:
    try:
        found = parts_per_million("rate", rate)
    except ParametersError:
        assert not 0 <= rate <= 1
        return
    assert 0 <= found <= MILLION
    assert abs(Decimal(repr(rate)) * MILLION - found) <= Decimal("0.5")


@given(share=st.integers(0, MILLION), whole=st.integers(0, 100_000))
def test_a_share_is_rounded_as_decimal_arithmetic_does(share: int, whole: int) -> None:
    exact = Decimal(share) * whole / MILLION
    assert rounded_share(share, whole) == int(exact.quantize(Decimal(1), ROUND_HALF_UP))


def test_a_layout_adds_up_to_the_dimension() -> None:
    require_layout((("weight", (2, 3)), ("bias", (3,)), ("scale", ())), 10)
    require_layout((), 0)
    with pytest.raises(ParametersError, match="its tensors have 9 numbers, and d = 10"):
        require_layout((("weight", (2, 3)), ("bias", (3,))), 10)


def test_a_tensors_name_stands_once() -> None:
    with pytest.raises(ParametersError, match="a tensor's name is repeated"):
        require_layout((("weight", (2,)), ("weight", (2,))), 4)


@given(
    clients=st.integers(-1, 700),
    rates=st.tuples(*[st.integers(0, 1000).map(lambda x: 1000 * x)] * 3),
)
def test_what_is_not_refused_keeps_every_invariant(
    clients: int, rates: tuple[int, int, int]
) -> None:
    try:
        found = Parameters(clients, *rates, 1, 1)
    except ParametersError:
        return
    assert parameters.MIN_MEMBERS <= found.members <= found.trainers
    assert found.members <= parameters.MAX_MEMBERS
    assert 1 <= found.accepted <= found.trainers <= parameters.MAX_TRAINERS
    assert found.members + found.trainers == found.active <= found.clients
    assert found.members // 2 <= found.replies <= found.members - 1


def test_a_distance_is_squared_or_a_function_and_not_with_strategy_three() -> None:
    own = f"mine.py:manhattan@sha256:{'ab' * 32}"
    assert made(distance=own, strategy=2).distance == own
    assert made(distance="squared", strategy=3).distance_rule is DIRECTION
    refused("distance = .* cannot be set with strategy 3", distance=own, strategy=3)
    refused("distance = direction cannot be set with strategy 3", distance="direction", strategy=3)
    refused("distance = l2 is neither squared nor a function", distance="l2")
    refused("distance = x{80} is neither squared", distance="x" * 900)


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
    refusal = errors.ProtocolRefusal(RefusalCode.WRONG_ROUND)
    assert str(refusal) == refusal.reason == "committee_ledger: wrong round"


def test_a_refusal_can_add_its_circumstances() -> None:
    refusal = errors.ProtocolRefusal(RefusalCode.WRONG_ROUND, "round 3 is open")
    assert str(refusal) == "committee_ledger: wrong round (round 3 is open)"
    assert refusal.reason == "committee_ledger: wrong round"
    assert refusal._render_traceback_() == [f"ProtocolRefusal: {refusal}"]  # in a notebook


def test_every_error_is_in_one_tree_and_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    leaves = errors.CmflError.__subclasses__()
    for leaf in (leaf for leaf in leaves if leaf.__module__ == errors.__name__):
        assert leaf.__name__ in drawn


def test_a_distance_has_a_sentence_without_its_function() -> None:
    assert made().distance_sentence == SQUARED.sentence
    assert made(strategy=3).distance_sentence == DIRECTION.sentence
