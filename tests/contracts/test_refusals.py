"""Each refusal is given with its reason, by contract and specification alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest

from contracts.build import HERE, SOURCES
from ledger.chain.contract import abi, codec
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter, TransactionRevertedError
from ledger.protocol import encoding, errors
from ledger.protocol.errors import REVERT_PREFIX, ProtocolRefusal, RefusalCode
from ledger.protocol.ledger_state import registry_batches
from ledger.protocol.types import NO_DIGEST, AcceptanceForm, ClientId, Digest
from tests.contracts import faults, support, test_deployment_guards, wrong_decisions
from tests.contracts.faults import Fault
from tests.contracts.twins import Outcome, Shape, Twins, digest_of, registry_of, signers
from tests.support.keys import mirrored

StageFault: TypeAlias = "Callable[[ChainWriter], Outcome]"
FAULTS = faults.FAULTS + wrong_decisions.WRONG_DECISIONS
SHAPE = Shape(commit_blocks=12, deadline_blocks=60)
CLIENTS = SHAPE.clients
WORDS = tuple(encoding.registry_word(client) for client in registry_of(CLIENTS))
MORE = digest_of("more")


def registering(chain: ChainWriter, registry: Digest) -> Twins:
    return Twins(chain, SHAPE.deployment(registry), signers(CLIENTS))


def register_in_one_batch(
    chain: ChainWriter, words: Sequence[int], rest: Digest = NO_DIGEST
) -> Outcome:
    twins = registering(chain, encoding.registry_digest(words, rest))
    return twins.register(words, rest)


def register_another_client(chain: ChainWriter) -> Outcome:
    twins = registering(chain, encoding.registry_digest(WORDS, NO_DIGEST))
    return twins.register((WORDS[0] + 1, *WORDS[1:]), NO_DIGEST)


def register_batches_in_disorder(chain: ChainWriter) -> Outcome:
    registry, batches = registry_batches(WORDS, 6)
    return registering(chain, registry).register(*batches[1])


def register_in_two_batches(
    chain: ChainWriter, first: Sequence[int], second: Sequence[int]
) -> Outcome:
    rest = encoding.registry_digest(second, NO_DIGEST)
    twins = registering(chain, encoding.registry_digest(first, rest))
    assert isinstance(twins.register(first, rest), tuple)
    return twins.register(second, NO_DIGEST)


def second_batch_starts_below_the_first(chain: ChainWriter) -> Outcome:
    # Each batch ascends in itself: only what the contract remembers of the first can refuse.
    return register_in_two_batches(chain, WORDS[6:], WORDS[:6])


def a_key_in_two_batches(chain: ChainWriter) -> Outcome:
    return register_in_two_batches(chain, WORDS[:6], (WORDS[5] + 1, *WORDS[7:]))


def commit_before_the_first_round(chain: ChainWriter) -> Outcome:
    twins = registering(chain, NO_DIGEST)
    return twins.commit(0, [support.commitment(twins, ClientId(0))])


def abandon_after_the_last_round(chain: ChainWriter) -> Outcome:
    return finished(chain).abandon(1)


def decide_after_the_last_round(chain: ChainWriter) -> Outcome:
    twins = Twins.opened(chain, Shape(rounds=1))
    support.commit_all(twins, support.active_of(twins.state))
    found = faults.honest(twins)
    assert isinstance(twins.decide(found), tuple)
    return twins.decide(found)


def report_before_the_first_round(chain: ChainWriter) -> Outcome:
    # Of a client that is registered already, so that nothing else is wrong.
    registry, batches = registry_batches(WORDS, 6)
    twins = registering(chain, registry)
    assert isinstance(twins.register(*batches[0]), tuple)
    return twins.report(support.equivocation(twins, ClientId(1)))


def clients_through_a_contract(chain: ChainWriter) -> Outcome:
    twins = registering(chain, encoding.registry_digest(WORDS, NO_DIGEST))
    return twins.relayed(lambda relayed: relayed.register(WORDS, NO_DIGEST))


def finished(chain: ChainWriter) -> Twins:
    twins = Twins.opened(chain, Shape(rounds=1))
    twins.wait()
    assert isinstance(twins.abandon(1), tuple)
    return twins


def malformed(word: int) -> Callable[[ChainWriter], Outcome]:
    return lambda chain: register_in_one_batch(chain, (*WORDS[:-1], word))


STAGE_FAULTS: tuple[tuple[str, RefusalCode, StageFault], ...] = (
    ("another client", RefusalCode.REGISTRY_MISMATCH, register_another_client),
    ("batches in disorder", RefusalCode.REGISTRY_MISMATCH, register_batches_in_disorder),
    ("a client without samples", RefusalCode.MALFORMED_CLIENT, malformed(WORDS[-1] >> 64 << 64)),
    ("an address of 161 bits", RefusalCode.MALFORMED_CLIENT, malformed(WORDS[-1] | 1 << 224)),
    ("a client with a ban", RefusalCode.MALFORMED_CLIENT, malformed(WORDS[-1] | 1 << 255)),
    ("a client twice", RefusalCode.CLIENTS_NOT_ASCENDING, malformed(WORDS[-2] + 1)),
    ("the zero address first", RefusalCode.CLIENTS_NOT_ASCENDING,
     lambda chain: register_in_one_batch(chain, (7, *WORDS[1:]))),
    ("a second batch below the first", RefusalCode.CLIENTS_NOT_ASCENDING,
     second_batch_starts_below_the_first),
    ("a key in two batches", RefusalCode.CLIENTS_NOT_ASCENDING, a_key_in_two_batches),
    ("clients through a contract", RefusalCode.NOT_SENT_BY_ACCOUNT, clients_through_a_contract),
    ("an end before the last client", RefusalCode.REGISTRY_END,
     lambda chain: register_in_one_batch(chain, WORDS[:-1])),
    ("more after the last client", RefusalCode.REGISTRY_END,
     lambda chain: register_in_one_batch(chain, WORDS, MORE)),
    ("more clients than K", RefusalCode.REGISTRY_END,
     lambda chain: register_in_one_batch(chain, (*WORDS, WORDS[-1] + 2**64), MORE)),
    ("one before the first round", RefusalCode.NO_ROUND_OPEN, commit_before_the_first_round),
    ("an end after the last round", RefusalCode.NO_ROUND_OPEN, abandon_after_the_last_round),
    ("a decision after the last round", RefusalCode.NO_ROUND_OPEN, decide_after_the_last_round),
    ("a report before the first round", RefusalCode.NOT_OPENED, report_before_the_first_round),
)  # fmt: skip


@pytest.fixture(scope="module")
def left_open() -> dict[AcceptanceForm, Twins]:
    """By form, a contract whose round a test has decided; its next is open since the last block."""
    return {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.sentence)
def test_a_wrong_transaction_is_refused_for_its_reason(
    chain: ChainWriter, left_open: dict[AcceptanceForm, Twins], fault: Fault
) -> None:
    shape = replace(SHAPE, form=fault.form, rounds=len(FAULTS) + 1)
    twins = left_open.pop(fault.form, None)
    if twins is None or twins.state.opened_block < chain.head().number:
        twins = Twins.opened(chain, shape)
    support.commit_all(twins, support.active_of(twins.state))

    assert fault.act(twins) is fault.refusal

    twins.compare_clients()
    assert isinstance(twins.decide(faults.honest(twins)), tuple)
    # A banned client would be refused for its ban, in whatever order tests are run.
    if not any(client.banned_in for client in twins.state.registry):
        left_open[fault.form] = twins


@pytest.mark.parametrize("fault", faults.BAN_FAULTS, ids=lambda f: f.sentence)
def test_actions_of_the_banned_are_refused_and_the_round_continues(
    chain: ChainWriter, fault: Fault
) -> None:
    twins = Twins.opened(chain, SHAPE)
    support.commit_all(twins, support.active_of(twins.state))

    assert fault.act(twins) is fault.refusal

    twins.compare_clients()
    rest = set(support.active_of(twins.state)) - twins.state.committed
    assert not rest or isinstance(support.commit_all(twins, rest), tuple)
    assert isinstance(twins.decide(faults.honest(twins)), tuple)


@pytest.mark.parametrize(
    ("sentence", "refusal", "act"), STAGE_FAULTS, ids=[fault[0] for fault in STAGE_FAULTS]
)
def test_actions_forbidden_in_a_stage_are_refused(
    chain: ChainWriter,
    sentence: str,
    refusal: RefusalCode,
    act: Callable[[ChainWriter], Outcome],
) -> None:
    assert act(chain) is refusal


@pytest.mark.parametrize("fault", faults.DELEGATED_FAULTS, ids=lambda f: f.sentence)
def test_no_transaction_is_taken_from_a_delegated_account(
    embedded_chain: EmbeddedChain, fault: Fault
) -> None:
    twins = Twins.opened(embedded_chain, SHAPE)
    support.commit_all(twins, support.active_of(twins.state))
    assert fault.act(twins) is fault.refusal
    assert isinstance(twins.decide(faults.honest(twins)), tuple)


def test_every_refusal_of_the_protocol_has_a_case_here() -> None:
    given = {fault.refusal for fault in FAULTS + faults.BAN_FAULTS + faults.DELEGATED_FAULTS}
    assert given | {refusal for _, refusal, _ in STAGE_FAULTS} == set(RefusalCode)


def test_the_contract_gives_no_reason_that_is_not_tested() -> None:
    sources = "".join((HERE / name).read_text("utf-8") for name in SOURCES)
    reasons = set(re.findall(r'"(committee_ledger: [^"<]+)"', sources))
    constructor = {f"committee_ledger: {reason}" for _, reason in test_deployment_guards.REFUSED}
    assert reasons == {REVERT_PREFIX + fact for fact in RefusalCode} | constructor | {UNKNOWN_KIND}


UNKNOWN_KIND = "committee_ledger: kind of statement is unknown"


@pytest.mark.parametrize("kind", [0, 4, 255])
def test_a_kind_of_statement_that_there_is_not_is_refused(chain: ChainWriter, kind: int) -> None:
    # The specification cannot even say it, so only the contract can meet this.
    twins = Twins.opened(chain, SHAPE)
    report = support.equivocation(twins, ClientId(0))
    client, _, *rest = abi.arguments_of(
        "report_equivocation", codec.encode_call(codec.ReportCall(report))
    )
    data = abi.call_data("report_equivocation", client, kind, *rest)
    with pytest.raises(TransactionRevertedError) as caught:
        chain.send(twins.ledger.address, data, 300_000)
    assert abi.revert_reason(caught.value.data) == UNKNOWN_KIND


def test_the_mirrored_signature_cannot_even_be_sent(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, SHAPE)
    signed = support.commitment(twins, ClientId(0))
    twin = replace(signed, signature=mirrored(signed.signature))
    with pytest.raises(errors.SignatureError):
        twins.ledger.commit_updates(1, [twin])
    assert isinstance(twins.commit(1, [signed]), tuple)


@pytest.mark.parametrize("signatures", [[], [(bytes(32), bytes(32))] * 2])
def test_commitments_without_a_signature_each_are_refused(
    chain: ChainWriter, signatures: list[tuple[bytes, bytes]]
) -> None:
    # The specification takes them in pairs, so only the contract can meet this.
    twins = Twins.opened(chain, SHAPE)
    data = abi.call_data("commit_updates", 1, [(0, digest_of("payload"))], signatures)
    with pytest.raises(TransactionRevertedError) as caught:
        chain.send(twins.ledger.address, data, 1_000_000)
    refusal = abi.refusal(caught.value)
    assert isinstance(refusal, ProtocolRefusal)
    assert refusal.code is RefusalCode.SIGNATURE_COUNT
