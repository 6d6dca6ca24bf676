"""An honest client commits once and in time, and publishes nothing before all inputs are closed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.actors.actions import PostEnvelope, SendCommitment, StoreBlobs
from ledger.actors.trainer import Trainer
from ledger.protocol.documents.envelope import PublishedPayload
from ledger.protocol.encoding import commitment_of, sha256
from ledger.protocol.payload import Payload
from ledger.protocol.signing import is_signed_by
from ledger.protocol.types import ClientId
from tests.actors.support import Network, signers
from tests.support.keys import DOMAIN

if TYPE_CHECKING:
    from ledger.actors.view import ChainView

ME = ClientId(3)
PAYLOAD = Payload.of(b"an update")


def trainer(client: int = ME, update: Payload | None = None) -> Trainer:
    return Trainer(ClientId(client), signers()[client], update)


def chain_of(network: Network) -> ChainView:
    chain = network.chain.view()
    assert chain is not None
    return chain


def test_commits_its_payload_bound_to_itself() -> None:
    chain = chain_of(Network())
    (action,) = trainer().commit(chain, PAYLOAD)
    assert isinstance(action, SendCommitment)
    commitment = action.signed.commitment
    assert commitment.commitment == commitment_of(ME, sha256(b"an update"))
    assert (commitment.round, commitment.client) == (1, ME)
    assert is_signed_by(signers()[ME].address, DOMAIN, commitment, action.signed.signature)


def test_commits_again_until_the_commitment_is_recorded() -> None:
    network = Network()
    actions = trainer().commit(chain_of(network), PAYLOAD)
    assert trainer().commit(chain_of(network), PAYLOAD) == actions
    network.apply(actions[0])
    network.chain.mine(0.0)
    assert trainer().commit(chain_of(network), PAYLOAD) == []
    assert trainer(4).commit(chain_of(network), PAYLOAD) != []


def test_does_not_commit_when_the_window_is_over() -> None:
    network = Network()
    chain = chain_of(network)
    network.chain.mine_to(chain.opened_block + chain.parameters.commit_blocks, 0.0)
    assert trainer().commit(chain_of(network), PAYLOAD) == []


def test_does_not_commit_when_banned_before_the_round() -> None:
    chain = chain_of(Network())
    registry = list(chain.registry)
    registry[ME] = replace(registry[ME], banned_in=1)
    assert trainer().commit(replace(chain, registry=tuple(registry)), PAYLOAD) != []
    assert trainer().commit(replace(chain, registry=tuple(registry), round=2), PAYLOAD) == []


def test_publishes_what_counts_until_it_is_announced() -> None:
    network = Network()
    view = network.close()
    (client, *_) = view.inputs.participants.active
    payload = Payload.of(network.payload(1, client))
    store, post = trainer(client, payload).publish(view)
    assert store == StoreBlobs(payloads={client: payload})
    assert isinstance(post, PostEnvelope)
    assert post.envelope.body == PublishedPayload(sha256(network.payload(1, client)))
    assert trainer(client, payload).publish(view.with_envelopes([post.envelope])) == []


def test_publishes_nothing_that_does_not_count() -> None:
    network = Network()
    absent = chain_of(network).participants().trainers[0]
    view = network.close(absent)
    present = view.inputs.participants.trainers[1]
    assert trainer(absent, Payload.of(network.payload(1, absent))).publish(view) == []
    assert trainer(present, Payload.of(b"another update")).publish(view) == []
