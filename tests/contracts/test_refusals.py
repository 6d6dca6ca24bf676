"""Each refusal is given with its reason, by contract and specification alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.chain import abi, reverts
from ledger.chain.ports import TransactionRevertedError
from ledger.protocol import encoding, errors
from ledger.protocol.ledger_state import registry_batches
from ledger.protocol.types import NO_DIGEST, ClientId, Digest, RegisteredClient, VoteKind
from tests.contracts import faults, support, wrong_decisions
from tests.contracts.twins import Outcome, Shape, Twins, digest_of, registry_of, signers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.chain.embedded import EmbeddedChain
    from ledger.protocol.errors import Refusal
    from tests.contracts.faults import Fault

FAULTS = faults.FAULTS + wrong_decisions.WRONG_DECISIONS + faults.BAN_FAULTS
CLIENTS = Shape().clients
WORDS = tuple(encoding.registry_word(client) for client in registry_of(CLIENTS))
MORE = digest_of("more")


def registering(chain: EmbeddedChain, registry: Digest) -> Twins:
    return Twins(chain, Shape().deployment(registry), signers(CLIENTS))


def register_in_one_batch(
    chain: EmbeddedChain, words: Sequence[int], rest: Digest = NO_DIGEST
) -> Outcome:
    twins = registering(chain, encoding.registry_digest(words, rest))
    return twins.register(words, rest)


def register_another_client(chain: EmbeddedChain) -> Outcome:
    twins = registering(chain, encoding.registry_digest(WORDS, NO_DIGEST))
    return twins.register((WORDS[0] + 1, *WORDS[1:]), NO_DIGEST)


def register_batches_in_disorder(chain: EmbeddedChain) -> Outcome:
    registry, batches = registry_batches(WORDS, 6)
    return registering(chain, registry).register(*batches[1])


def second_batch_starts_below_the_first(chain: EmbeddedChain) -> Outcome:
    registry, batches = registry_batches(WORDS[6:] + WORDS[:6], 6)
    twins = registering(chain, registry)
    assert isinstance(twins.register(*batches[0]), tuple)
    return twins.register(*batches[1])


def commit_before_the_first_round(chain: EmbeddedChain) -> Outcome:
    twins = registering(chain, NO_DIGEST)
    return twins.commit(0, [support.commitment(twins, ClientId(0))])


def abandon_after_the_last_round(chain: EmbeddedChain) -> Outcome:
    return finished(chain).abandon(1)


def decide_after_the_last_round(chain: EmbeddedChain) -> Outcome:
    twins = Twins.opened(chain, Shape(rounds=1))
    support.commit_all(twins, support.trainers_of(twins.state))
    found = faults.honest(twins)
    assert isinstance(twins.decide(found), tuple)
    return twins.decide(found)


def report_after_the_last_round(chain: EmbeddedChain) -> Outcome:
    twins = finished(chain)
    return twins.report(ClientId(0), *support.equivocation(twins, ClientId(0)))


def finished(chain: EmbeddedChain) -> Twins:
    twins = Twins.opened(chain, Shape(rounds=1))
    twins.wait()
    assert isinstance(twins.abandon(1), tuple)
    return twins


def malformed(word: int) -> Callable[[EmbeddedChain], Outcome]:
    return lambda chain: register_in_one_batch(chain, (*WORDS[:-1], word))


STAGE_FAULTS: tuple[tuple[str, type[Refusal], Callable[[EmbeddedChain], Outcome]], ...] = (
    ("another client", errors.RegistryMismatchError, register_another_client),
    ("batches in disorder", errors.RegistryMismatchError, register_batches_in_disorder),
    ("a client without samples", errors.MalformedClientError, malformed(WORDS[-1] >> 64 << 64)),
    ("an address of 161 bits", errors.MalformedClientError, malformed(WORDS[-1] | 1 << 224)),
    ("a client with a ban", errors.MalformedClientError, malformed(WORDS[-1] | 1 << 255)),
    ("a client twice", errors.ClientsNotAscendingError, malformed(WORDS[-2] + 1)),
    ("the zero address first", errors.ClientsNotAscendingError,
     lambda chain: register_in_one_batch(chain, (7, *WORDS[1:]))),
    ("a second batch below the first", errors.ClientsNotAscendingError,
     second_batch_starts_below_the_first),
    ("an end before the last client", errors.RegistryEndError,
     lambda chain: register_in_one_batch(chain, WORDS[:-1])),
    ("more after the last client", errors.RegistryEndError,
     lambda chain: register_in_one_batch(chain, WORDS, MORE)),
    ("more clients than K", errors.RegistryEndError,
     lambda chain: register_in_one_batch(chain, (*WORDS, WORDS[-1] + 2**64), MORE)),
    ("a commitment before the first round", errors.NoRoundOpenError, commit_before_the_first_round),
    ("an end after the last round", errors.NoRoundOpenError, abandon_after_the_last_round),
    ("a decision after the last round", errors.NoRoundOpenError, decide_after_the_last_round),
    ("a report after the last round", errors.NoRoundOpenError, report_after_the_last_round),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.sentence)
def test_a_wrong_transaction_is_refused_for_its_reason_and_the_honest_one_is_not(
    chain: EmbeddedChain, fault: Fault
) -> None:
    twins = Twins.opened(chain, Shape(strategy=fault.strategy, deadline_blocks=50))
    support.commit_all(twins, support.trainers_of(twins.state))

    assert fault.act(twins) is fault.refusal

    twins.compare_clients()
    assert isinstance(twins.decide(faults.honest(twins)), tuple)


@pytest.mark.parametrize(
    ("sentence", "refusal", "act"), STAGE_FAULTS, ids=[fault[0] for fault in STAGE_FAULTS]
)
def test_what_a_stage_does_not_allow_is_refused_for_its_reason(
    chain: EmbeddedChain,
    sentence: str,
    refusal: type[Refusal],
    act: Callable[[EmbeddedChain], Outcome],
) -> None:
    assert act(chain) is refusal


def test_every_refusal_of_the_protocol_has_a_case_here() -> None:
    given = {fault.refusal for fault in FAULTS}
    assert given | {refusal for _, refusal, _ in STAGE_FAULTS} == set(errors.REFUSALS.values())


def test_votes_that_are_not_of_one_slot_are_no_report(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, Shape())
    client = twins.state.committee[0]
    first, _ = support.equivocation(twins, client)
    _, other = support.equivocation(twins, client, VoteKind.REPLY)
    with pytest.raises(ValueError, match="one kind, round, phase and view"):
        twins.report(client, first, other)


def test_the_mirrored_signature_cannot_even_be_sent(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, Shape())
    client, payload, signature = support.commitment(twins, ClientId(0))
    with pytest.raises(errors.SignatureError):
        twins.ledger.commit_updates(1, [(client, payload, support.mirrored(signature))])
    assert isinstance(twins.commit(1, [(client, payload, signature)]), tuple)


@pytest.mark.parametrize("signatures", [[], [(bytes(32), bytes(32))] * 2])
def test_commitments_without_a_signature_each_are_refused(
    chain: EmbeddedChain, signatures: list[tuple[bytes, bytes]]
) -> None:
    # The specification takes them in pairs, so only the contract can meet this.
    twins = Twins.opened(chain, Shape())
    data = abi.call_data("commit_updates", 1, [(0, digest_of("payload"))], signatures)
    with pytest.raises(TransactionRevertedError) as caught:
        chain.send(twins.ledger.address, data, 1_000_000)
    assert reverts.refusal(caught.value).__class__ is errors.SignatureCountError


def test_a_registered_client_is_what_was_deployed(chain: EmbeddedChain) -> None:
    twins = Twins.opened(chain, Shape(), batch=5)
    assert twins.ledger.registry() == registry_of(CLIENTS)
    assert twins.ledger.client(ClientId(11)) == RegisteredClient(twins.keys[11].address, 10 + 11)
    with pytest.raises(errors.UnknownClientError):
        twins.ledger.client(ClientId(CLIENTS))
    with pytest.raises(errors.UnknownClientError):
        twins.ledger.has_committed(ClientId(CLIENTS))
