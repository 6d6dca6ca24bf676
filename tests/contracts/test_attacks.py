"""What was done to the first version by its own participants, and is worth nothing now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.chain.contract import abi, codec
from ledger.chain.contract.codec import CommitCall
from ledger.chain.contract.deploy import creation_data
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import ChainWriter
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.protocol import encoding, ledger_state
from ledger.protocol.encoding import contract_created_by, to_canonical
from ledger.protocol.errors import RefusalCode
from ledger.protocol.ledger_state import (
    Deployment,
    LedgerStage,
    StatementKind,
    domain_of,
    registry_batches,
)
from ledger.protocol.signing import domain_separator
from ledger.protocol.types import Address, ClientId, Commitment, Digest
from tests.chain.test_port_contract import ANVIL_KEY, anvil
from tests.chain.web3_provider import transport_to
from tests.contracts import faults, support
from tests.contracts.relay import DELEGATION, DelegatedLedger, RelayedLedger, delegation
from tests.contracts.twins import DEPLOYMENT_GAS, Outcome, Shape, Twins, registry_of, signers
from tests.support.refusals import refused

SHAPE = Shape(commit_blocks=12, deadline_blocks=60)


def taken(outcome: Outcome) -> tuple[ClientId, ...]:
    assert isinstance(outcome, tuple)
    (event,) = outcome
    assert isinstance(event, ledger_state.UpdatesCommitted)
    return event.clients


def playing(chain: ChainWriter, shape: Shape = SHAPE) -> Twins:
    """Return twins in whose round 1 all active clients have committed."""
    twins = Twins.opened(chain, shape)
    support.commit_all(twins, support.active_of(twins.state))
    return twins


@pytest.mark.parametrize("kind", StatementKind)
def test_a_ranked_trainers_self_ban_does_not_void_the_decision(
    chain: ChainWriter, kind: StatementKind
) -> None:
    twins = playing(chain)
    found = faults.honest(twins)
    for word in found.decision.ranking[:2]:
        client = encoding.word_client(word)
        assert isinstance(twins.report(support.equivocation(twins, client, kind)), tuple)
    assert isinstance(twins.decide(found), tuple)
    twins.compare_clients()


def test_members_that_ban_themselves_do_not_void_their_votes(chain: ChainWriter) -> None:
    twins = playing(chain)
    found = faults.honest(twins)
    for member in twins.state.committee:
        assert isinstance(twins.report(support.equivocation(twins, member)), tuple)
    assert isinstance(twins.decide(found), tuple)
    assert all(twins.state.registry[m].banned_in == 1 for m in found.decision.committee)


def test_a_copied_commitment_opens_nothing_of_who_copies_it(embedded_chain: EmbeddedChain) -> None:
    twins = Twins.opened(embedded_chain, SHAPE)
    author, thief = support.trainers_of(twins.state)[:2]
    original = support.commitment(twins, author)
    word = original.commitment.commitment
    # With the author's signature it is refused; with the thief's own it is its word, of no payload.
    copied = replace(original, commitment=Commitment(1, thief, word))
    assert twins.commit(1, [copied]) is RefusalCode.COMMITMENT_NOT_SIGNED
    stolen = support.signed_commitment(twins, Commitment(1, thief, word))
    assert taken(twins.commit(1, [original, stolen])) == (author, thief)
    payload = support.payload_of(1, author)
    mined = {c.client: c.commitment for c in twins.ledger.commitments(1)}
    assert mined[author] == encoding.commitment_of(author, payload)
    assert mined[thief] != encoding.commitment_of(thief, payload)


def test_a_commitment_sent_ahead_does_not_spoil_its_batch(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, SHAPE)
    clients = support.active_of(twins.state)
    support.commit_all(twins, [clients[3]])
    assert taken(support.commit_all(twins, clients)) == clients[:3] + clients[4:]
    assert twins.state.committed == set(clients)
    twins.compare_clients()


def test_nobody_looks_at_the_signature_of_what_is_passed_over(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, SHAPE)
    first, second = support.trainers_of(twins.state)[:2]
    support.commit_all(twins, [first])
    again = support.commitment(twins, first)
    spoilt = replace(again, signature=support.high_s(again.signature))
    fresh = support.commitment(twins, second)
    assert taken(twins.commit(1, [spoilt, fresh, spoilt, fresh])) == (second,)


def test_the_largest_batch_may_start_with_one_sent_ahead(chain: ChainWriter) -> None:
    shape = Shape(clients=300, trainers=250, members=6, commit_blocks=12, deadline_blocks=60)
    twins = Twins.opened(chain, shape)
    clients = support.active_of(twins.state)
    support.commit_all(twins, [clients[0], clients[255]])
    assert taken(support.commit_all(twins, clients)) == clients[1:255]


def test_a_relay_carries_nothing_but_its_batch_works_directly(
    embedded_chain: EmbeddedChain,
) -> None:
    twins = Twins.opened(embedded_chain, SHAPE)
    batch = [support.commitment(twins, client) for client in support.active_of(twins.state)]
    relayed = twins.relayed(lambda r: r.commit(1, batch))
    assert relayed is RefusalCode.NOT_SENT_BY_ACCOUNT
    assert isinstance(twins.commit(1, batch), tuple)
    call = twins.ledger.call_of(twins.last_receipt.transaction_hash)
    assert call == CommitCall(1, tuple(batch))


def test_no_draw_and_no_later_round_seats_who_is_banned(chain: ChainWriter) -> None:
    # A third of all clients; before, banned clients were still sampled and drawn.
    shape = Shape(20, 6, 5, rounds=9, commit_blocks=12, deadline_blocks=40)
    twins = Twins.opened(chain, shape)
    banned = set(map(ClientId, range(0, 18, 3)))
    for client in sorted(banned):
        twins.report(support.equivocation(twins, client))
    twins.wait()
    assert isinstance(twins.abandon(1), tuple)
    for number in range(2, 9):
        active = support.active_of(twins.state)
        assert not banned & {*active, *twins.state.committee}
        assert len(active) == 11
        assert taken(support.commit_all(twins, active)) == active
        assert isinstance(twins.decide(faults.honest(twins)), tuple), number


def test_equivocation_is_still_recorded_after_the_last_round(embedded_chain: EmbeddedChain) -> None:
    twins = playing(embedded_chain, replace(SHAPE, rounds=1))
    member = twins.state.committee[0]
    assert isinstance(twins.decide(faults.honest(twins)), tuple)
    assert twins.state.stage is LedgerStage.FINISHED
    before = twins.state.head
    for kind, accused in zip(StatementKind, (member, ClientId(0), ClientId(1)), strict=True):
        if not twins.state.registry[accused].banned_in:
            assert isinstance(twins.report(support.equivocation(twins, accused, kind)), tuple)
    assert twins.state.head != before
    assert {ban.client for ban in twins.ledger.bans()} == {member, 0, 1}
    twins.compare_clients()


@pytest.mark.parametrize("kind", [StatementKind.REQUEST, StatementKind.REPLY])
def test_votes_are_proof_for_any_phase_and_view(chain: ChainWriter, kind: StatementKind) -> None:
    twins = playing(chain)
    phases = ({"phase": phase} for phase in (0, 2, 3, 255))
    odd = (*phases, {"view": 2**32 - 1}, {"round": 2**64 - 1})
    for client, fields in enumerate(odd):
        report = support.equivocation(twins, ClientId(client), kind, **fields)
        assert isinstance(twins.report(report), tuple)


@pytest.mark.parametrize("phase", [1, 2, 3, 255])
def test_of_score_vectors_nobody_looks_at_phase_and_view(chain: ChainWriter, phase: int) -> None:
    # The specification cannot even say them, so only the contract can meet this.
    twins = playing(chain)
    report = support.equivocation(twins, ClientId(0), StatementKind.SCORES)
    client, kind, number, _, _, *rest = abi.arguments_of(
        "report_equivocation", codec.encode_call(codec.ReportCall(report))
    )
    data = abi.call_data("report_equivocation", client, kind, number, phase, 2**32 - 1, *rest)
    twins.chain.send(twins.ledger.address, data, 300_000)
    assert twins.ledger.client(ClientId(0)).banned_in == 1


@pytest.mark.parametrize("kind", StatementKind)
@pytest.mark.parametrize("said_in", [0, 1, 2, 3, 4, 2**64 - 1])
def test_a_ban_counts_from_its_report_not_from_the_statement(
    chain: ChainWriter, kind: StatementKind, said_in: int
) -> None:
    # Round 3 is open. A ban of an earlier round would void what its trainers and members do in it.
    twins = playing(chain)
    for _ in range(2):
        assert isinstance(twins.decide(faults.honest(twins)), tuple)
        support.commit_all(twins, support.active_of(twins.state))
    found = faults.honest(twins)
    member, trainer = twins.state.committee[0], faults.rankable(twins)[0]
    for client in (member, trainer):
        report = support.equivocation(twins, client, kind, round=said_in)
        assert isinstance(twins.report(report), tuple)
        assert twins.ledger.client(client).banned_in == 3
    assert isinstance(twins.decide(found), tuple)


def test_a_ban_after_the_end_belongs_to_the_last_round(chain: ChainWriter) -> None:
    twins = playing(chain, replace(SHAPE, rounds=2))
    assert isinstance(twins.decide(faults.honest(twins)), tuple)
    twins.wait()
    assert isinstance(twins.abandon(2), tuple)
    assert twins.state.stage is LedgerStage.FINISHED
    for client, said_in in enumerate((1, 2, 3)):
        report = support.equivocation(twins, ClientId(client), round=said_in)
        assert isinstance(twins.report(report), tuple)
        assert twins.ledger.client(ClientId(client)).banned_in == 2


@pytest.mark.parametrize("clients", [13, 225])
def test_planted_flags_lock_no_client_out(embedded_chain: EmbeddedChain, clients: int) -> None:
    # The deployer's own creation code leaves the same code, and says that all have committed.
    shape = replace(SHAPE, clients=clients)
    words = [encoding.registry_word(client) for client in registry_of(clients)]
    registry, batches = registry_batches(words)
    deployment = shape.deployment(registry)
    flags = range(FLAG_WORDS, FLAG_WORDS + -(-clients // 224))
    planted = dict.fromkeys(flags, 1 << 224 | (1 << 224) - 1)
    creation = planting_creation(embedded_chain, deployment, planted)
    twins = Twins(embedded_chain, deployment, signers(clients), creation=creation)
    assert embedded_chain.code(twins.ledger.address).startswith(abi.artifact().runtime)
    for batch, rest in batches:
        assert isinstance(twins.register(batch, rest), tuple)
    twins.compare_clients()
    active = support.active_of(twins.state)
    assert taken(support.commit_all(twins, active)) == active
    assert isinstance(twins.decide(faults.honest(twins)), tuple)


def test_votes_are_never_hidden_in_a_transaction_of_a_delegated_account(
    embedded_chain: EmbeddedChain,
) -> None:
    # The account sends to itself: sender and origin are one, and its call data are not read.
    twins = Twins.opened(embedded_chain, SHAPE)
    call = CommitCall(1, (support.commitment(twins, support.trainers_of(twins.state)[0]),))
    ledger = DelegatedLedger(embedded_chain, twins.ledger)
    for to in (ledger.owner, ledger.address):
        with refused(RefusalCode.DELEGATED_ACCOUNT):
            ledger.send_to(to, call, 2_000_000)
    assert isinstance(twins.commit(call.round, call.signed), tuple)


@pytest.mark.network
def test_a_node_mines_no_transaction_of_a_delegated_account(tmp_path: Path) -> None:
    for node in anvil(tmp_path):
        assert isinstance(node, RpcChain)
        twins = Twins.opened(node, SHAPE)
        relay = RelayedLedger(node, twins.ledger).relay
        assert relay is not None
        raw = delegation(node.chain_id, ANVIL_KEY, node.next_nonce(), relay)
        transport_to(node).ask("eth_sendRawTransaction", f"0x{raw.hex()}")
        assert node.code(node.sender) == DELEGATION + to_canonical(relay)
        batch = [support.commitment(twins, support.trainers_of(twins.state)[0])]
        with refused(RefusalCode.DELEGATED_ACCOUNT):
            twins.ledger.commit_updates(1, batch)


def test_of_two_commitments_in_one_batch_the_first_is_taken(chain: ChainWriter) -> None:
    twins = Twins.opened(chain, SHAPE)
    client = support.trainers_of(twins.state)[0]
    first = support.commitment(twins, client)
    other = support.signed_commitment(twins, Commitment(1, client, support.payload_of(1, client)))
    word = first.commitment.commitment
    event = ledger_state.UpdatesCommitted(1, (client,), (word,))
    assert twins.commit(1, [first, other]) == (event,)


MODEL, HEAD, REGISTRY_REST = 3, 4, 6
FLAG_WORDS = 9 + 12_288
"""Storage slots of the contract: the first word of flags follows the registry."""


def planting_creation(
    chain: EmbeddedChain, deployment: Deployment, planted: Mapping[int, int]
) -> bytes:
    """Return creation code that leaves the contract as its constructor does, and further words."""
    honest = chain.send(None, creation_data(deployment), DEPLOYMENT_GAS)
    assert honest.contract_address is not None
    sender, nonce = to_canonical(chain.sender), chain.next_nonce()
    own, theirs = (
        domain_of(deployment, chain.chain_id, Address(address), Digest(bytes(32)))
        for address in (contract_created_by(sender, nonce), to_canonical(honest.contract_address))
    )
    runtime = chain.code(honest.contract_address)
    assert runtime.count(domain_separator(theirs)) == 1
    runtime = runtime.replace(domain_separator(theirs), domain_separator(own))
    words = {
        MODEL: int.from_bytes(deployment.model),
        HEAD: int.from_bytes(deployment.config),
        REGISTRY_REST: int.from_bytes(deployment.registry),
        **planted,
    }
    stores = b"".join(
        b"\x7f" + word.to_bytes(32) + b"\x61" + slot.to_bytes(2) + b"\x55"
        for slot, word in words.items()
    )
    logged = (
        b"\x7f" + own.salt + b"\x5f\x52\x7f" + abi.topic("LedgerDeployed") + b"\x60\x20\x5f\xa1"
    )
    begin = stores + logged
    size, offset = len(runtime).to_bytes(2), (len(begin) + 12).to_bytes(2)
    returned = b"\x61" + size + b"\x80\x61" + offset + b"\x5f\x39\x5f\xf3"
    return begin + returned.ljust(12, b"\x00") + runtime
