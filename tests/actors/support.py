"""What the tests of the actors share: keys, updates, and a network that loses what it is told to.

Nothing here knows a rule of the protocol: `ledger.actors` and `ledger.protocol` decide. Keys are
derived from a sentence: PUBLIC TEST KEYS, worth nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clients.adversaries.faults import MemberFault, member_with
from ledger.actors.journal import ProtectedSigner
from ledger.actors.participants import Member, MemberActor, Trainer
from ledger.actors.steps import (
    Action,
    JudgementCache,
    PostEnvelope,
    ProtocolSteps,
    SendCommitment,
    SendDecision,
    SendReport,
    StoreBlobs,
)
from ledger.actors.view import ChainView, Holdings, RoundView
from ledger.protocol.documents.envelope import (
    Envelope,
    Proposal,
    PublishedScores,
    Reply,
    decode_envelope,
    encode_envelope,
)
from ledger.protocol.documents.record import RoundRecord, decode_record
from ledger.protocol.encoding import RegisteredClient, sha256, vector_bytes, vector_from_bytes
from ledger.protocol.errors import JournalError
from ledger.protocol.inputs import Evidence, Inputs, primary_seat
from ledger.protocol.judgement import judge, sets_of
from ledger.protocol.ledger_state import LedgerState, RoundDecided
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import Payload
from ledger.protocol.rules.direction import displacement
from ledger.protocol.rules.distance import Layout
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import (
    ClientId,
    Digest,
    Domain,
    Phase,
    Scores,
    SignedCommitment,
    SignedScores,
    SignedVote,
    Slot,
    Vote,
)
from tests.actors.specification_chain import SpecificationBlock, SpecificationChain
from tests.support.keys import DOMAIN, key_signers, registered
from tests.support.rounds import OpenRound

LAYOUT: Layout = (("weight", (2, 3)), ("bias", (2,)))

PARAMETERS = Parameters(
    clients=14,
    active_ppm=857_143,
    committee_ppm=416_667,
    aggregation_ppm=500_000,
    rounds=3,
    dimension=8,
    commit_blocks=4,
    deadline_blocks=60,
    view_seconds=8,
)
"""Five members, seven trainers and two who are idle; three replies decide."""


@cache
def signers(count: int = PARAMETERS.clients) -> tuple[KeySigner, ...]:
    """Return PUBLIC TEST KEYS, ascending by address as a registry must be."""
    return key_signers(count, "actor")


@cache
def update_of(round_number: int, client: int, dimension: int = 8) -> NDArray[np.float32]:
    own = np.random.default_rng([round_number, client]).normal(size=dimension)
    return (np.ones(dimension) + 0.2 * own).astype(np.float32)


def payload_of(round_number: int, client: int) -> bytes:
    return vector_bytes(update_of(round_number, client))


@cache
def initial_model() -> NDArray[np.float32]:
    return np.linspace(-1, 1, PARAMETERS.dimension).astype(np.float32)


def registry_of(parameters: Parameters = PARAMETERS) -> tuple[RegisteredClient, ...]:
    return registered(signers(parameters.clients))


def signed_commitment(
    chain: ChainView, client: int, word: Digest, key: int | None = None
) -> SignedCommitment:
    """Return a commitment with a signature, of its own client if no other key is named."""
    return OpenRound(chain.domain, signers(), chain.round).commitment(client, word, key=key)


class PowerCutJournal:
    """A journal of which only what was synced survives, and of which backups can be made."""

    def __init__(self) -> None:
        self.durable: dict[bytes, bytes] = {}
        self.is_full = False
        self._pending: dict[bytes, bytes] = {}

    def record(self, place: bytes, statement: bytes) -> bytes:
        if place in self.durable:
            return self.durable[place]
        if self.is_full:
            raise JournalError("vote journal: the disk is full")
        return self._pending.setdefault(place, statement)

    def sync(self) -> None:
        if self.is_full and self._pending:
            raise JournalError("vote journal: the disk is full")
        self.durable |= self._pending
        self._pending.clear()

    def cut(self) -> None:
        """Lose what was not synced, as a killed process does."""
        self._pending.clear()

    def backup(self) -> dict[bytes, bytes]:
        return dict(self.durable)

    def restore(self, backup: Mapping[bytes, bytes]) -> None:
        self.durable, self._pending = dict(backup), {}


class Network:
    """A chain, a board that keeps every envelope that ever left, and a blob store."""

    def __init__(self, parameters: Parameters = PARAMETERS, *, depth: int = 0) -> None:
        self.parameters = parameters
        self.now = 0.0
        self.board: list[Envelope] = []
        self.blobs: dict[Digest, bytes] = {}
        self.payloads: dict[tuple[int, int], bytes] = {}
        self.inputs: dict[tuple[int, Digest], list[Inputs]] = defaultdict(list)
        self._posted: set[bytes] = set()
        self._sent: set[Action] = set()
        self._opened: tuple[SpecificationBlock, RoundView] | None = None
        self._unions: dict[int, tuple[int, RoundView]] = {}
        model = self.store(vector_bytes(initial_model()))
        self.chain = SpecificationChain(
            parameters, DOMAIN, registry_of(parameters), model, depth=depth
        )

    def store(self, data: bytes) -> Digest:
        self.blobs[sha256(data)] = data
        return sha256(data)

    def post(self, envelope: Envelope) -> bool:
        """Keep an envelope as its bytes say it, and tell whether it is new."""
        data = encode_envelope(envelope)
        if data in self._posted:
            return False
        self._posted.add(data)
        self.board.append(decode_envelope(data, envelope.domain))
        return True

    def apply(self, action: Action) -> bool:
        """Do what an actor asks for, and tell whether that is news."""
        match action:
            case StoreBlobs():
                stored = {digest: bytes(blob.data) for digest, blob in blobs_in(action).items()}
                assert all(sha256(data) == digest for digest, data in stored.items())
                self.blobs |= stored
                return False
            case PostEnvelope(envelope):
                return self.post(envelope)
            case SendCommitment() | SendReport() | SendDecision():
                has_new_mail = action not in self._sent
                self._sent.add(action)
                self.chain.send(action)
                return has_new_mail

    def payload(self, round_number: int, client: int) -> bytes:
        known = self.payloads.get((round_number, client))
        return payload_of(round_number, client) if known is None else known

    def opened(self) -> RoundView | None:
        """Return the round once the chain has closed it, with nothing published yet."""
        final = self.chain.final
        if self._opened is None or self._opened[0] is not final:
            view = self._opened_at(final)
            self._opened = None if view is None else (final, view)
        return None if self._opened is None else self._opened[1]

    def closed_view(self) -> RoundView:
        """Return the closed round, which there must be."""
        view = self.opened()
        assert view is not None
        return view

    def open_chain(self) -> ChainView:
        """Return the open round as the chain has it, which there must be."""
        chain = self.chain.view()
        assert chain is not None
        return chain

    def _opened_at(self, final: SpecificationBlock) -> RoundView | None:
        chain, model = self.chain.view(), self.model(final.state)
        inputs = None if chain is None else chain.inputs()
        if inputs is None or model is None:
            return None
        known = self.inputs[inputs.round, inputs.closing.base]
        inputs = next((one for one in known if one == inputs), inputs)
        if not any(one is inputs for one in known):
            known.append(inputs)
        closed_at, travel = (
            self.chain.timestamp(inputs.closing.block),
            self.travel(inputs, final.state),
        )
        form = inputs.parameters.payload_form
        evidence = Evidence(model, {}, {}, displacement=travel, form=form)
        return RoundView(inputs, closed_at, evidence)

    def travel(self, inputs: Inputs, state: LedgerState) -> NDArray[np.float32] | None:
        """Return w_1 − w_t, where the distances need it: no run here has more than 20 rounds."""
        first, now = self.blobs.get(state.deployment.model), self.model(state)
        if not inputs.needs_displacement or first is None or now is None:
            return None
        return displacement(vector_from_bytes(first, len(now)), now)

    def model(self, state: LedgerState) -> NDArray[np.float32] | None:
        data = self.blobs.get(state.model)
        return None if data is None else vector_from_bytes(data, self.parameters.dimension)

    def grown(self, view: RoundView, envelopes: Sequence[Envelope]) -> RoundView:
        view = view.with_envelopes(envelopes) if envelopes else view
        missing = {c: d for c, d in view.announced.items() if c not in view.evidence.payloads}
        found = {c: Payload.of(self.blobs[d]) for c, d in missing.items() if d in self.blobs}
        return view.with_payloads(found) if found else view

    def union(self) -> RoundView | None:
        """Return the round as somebody sees it who holds all that ever left."""
        view = self.opened()
        if view is None:
            return None
        start, known = self._unions.get(id(view.inputs), (0, view))
        known = self.grown(replace(known, closed_at=view.closed_at), self.board[start:])
        self._unions[id(view.inputs)] = (len(self.board), known)
        return known

    def commit(self, *clients: int) -> None:
        """Let these clients commit their updates, as honest ones do."""
        chain = self.open_chain()
        for client in clients:
            payload = Payload.of(self.payload(chain.round, client))
            for action in Trainer(ClientId(client), signers()[client]).commit(chain, payload):
                self.apply(action)

    def publish(self, *clients: int) -> None:
        """Let these clients publish what they have committed."""
        view = self.closed_view()
        for client in clients:
            payload = Payload.of(self.payload(view.inputs.round, client))
            for action in Trainer(ClientId(client), signers()[client], payload).publish(view):
                self.apply(action)

    def close(self, *absent: int) -> RoundView:
        """Let all active clients but these commit and publish; return the closed round."""
        chain = self.open_chain()
        able = [c for c in sorted(chain.participants().expected) if c not in absent]
        self.commit(*able)
        self.chain.mine(self.now)
        if absent:
            self.chain.mine_to(chain.opened_block + chain.parameters.commit_blocks, self.now)
        self.chain.mine_to(self.chain.head.number + self.chain.depth, self.now)
        self.publish(*able)
        return self.closed_view()

    def record_of(self, decided: RoundDecided) -> RoundRecord:
        return decode_record(self.blobs[decided.record])

    def require_right(self, decided: RoundDecided, before: LedgerState) -> None:
        """Judge a decision that the contract took by everything that was ever published."""
        record = self.record_of(decided)
        known = self.inputs[decided.round, decided.base]
        inputs = next(
            one
            for one in known
            if (one.seed, one.participants.committee) == (before.seed, before.committee)
        )
        vectors = {
            sha256(body.vector): body.vector
            for body in (envelope.body for envelope in self.board)
            if isinstance(body, PublishedScores)
        }
        named = record.payloads() | {d.client: d.payload for d in record.dropouts if d.payload}
        payloads = {client: Payload.of(self.blobs[digest]) for client, digest in named.items()}
        travel = self.travel(inputs, before)
        evidence = Evidence(self.model(before), payloads, vectors | self.blobs, displacement=travel)
        judgement, violations = judge(inputs, record, evidence)
        assert not violations
        assert judgement is not None
        assert judgement.opening == decided.opening()
        assert judgement.ranking.words == decided.ranking
        assert judgement.ranking.accepted == decided.accepted
        derived = sets_of(before.deployment, decided.ranking)
        assert judgement.ranking.candidates == derived.candidates
        elected = derived.elected(before.deployment.members, decided.next_seed)
        assert elected == decided.next_committee


@dataclass
class Statements:
    """What one honest key has said in all that ever left."""

    votes: dict[Slot, Vote]
    vectors: dict[tuple[int, Digest, Digest], Scores]

    def hear(self, envelope: Envelope) -> None:
        """Refuse a second statement for one place."""
        match envelope.body:
            case PublishedScores(signed, _):
                scores = signed.scores
                place = (scores.round, scores.base, scores.clients)
                assert self.vectors.setdefault(place, scores) == scores, "two vectors"
            case Proposal(request=signed) | Reply(signed):
                vote = signed.vote
                assert self.votes.setdefault(vote.slot, vote) == vote, "two votes in one slot"
            case _:
                pass


class RunningMember:
    """One process of a member: its journal, what reached it, and what it makes of it."""

    def __init__(
        self,
        network: Network,
        client: int,
        journal: PowerCutJournal | None = None,
        fault: MemberFault | None = None,
    ) -> None:
        self.network = network
        self.client = ClientId(client)
        self.journal = journal or PowerCutJournal()
        self.fault = fault
        self.stored: set[Digest] = set()
        self.statements = Statements({}, {})
        self.view: RoundView | None = None
        self.abstaining: int | None = None
        self.backups = [self.journal.backup()]
        self._inbox: list[Envelope] = []
        self._delivered: set[int] = set()
        self._unread = 0
        self._recalled: int | None = None
        self.restart()

    @property
    def is_honest(self) -> bool:
        return self.fault is None

    def restart(self) -> None:
        """Start anew: only the journal is left, and everything has to be delivered again."""
        self.journal.cut()
        self._inbox, self._delivered = [], set()
        self.honest = Member(self.client, signers()[self.client], self.journal, JudgementCache())
        self.actor: MemberActor = member_with(self.fault, self.honest, signers()[self.client])
        self.view, self._recalled, self._unread = None, None, 0

    def restore(self, backup: Mapping[bytes, bytes], *, mailbox_is_readable: bool) -> None:
        """Start anew on an older journal; without a mailbox the round in course is sat out."""
        self.journal.restore(backup)
        self.restart()
        chain = self.network.chain.view()
        if chain is not None and not mailbox_is_readable:
            self.abstaining = chain.round

    def twin(self) -> RunningMember:
        """Return a second process on the same journal."""
        other = RunningMember(self.network, self.client, self.journal, self.fault)
        other.stored, other.statements = self.stored, self.statements
        other.abstaining = self.abstaining
        return other

    def missing(self) -> list[int]:
        """Return which envelopes of the board have not been delivered."""
        return [i for i in range(len(self.network.board)) if i not in self._delivered]

    def deliver(self, envelopes: Sequence[int] | None = None) -> None:
        chosen = self.missing() if envelopes is None else envelopes
        self._inbox += [self.network.board[index] for index in chosen]
        self._delivered.update(chosen)

    def look(self) -> RoundView | None:
        """Return what this process sees of the round, None while it is open or sat out."""
        opened = self.network.opened()
        if opened is None or opened.inputs.round == self.abstaining:
            self.view = None
            return None
        if self.view is None or opened.inputs is not self.view.inputs:
            self.view, self._unread = opened, 0
        if self._recalled != opened.inputs.round:
            said = [
                envelope
                for envelope in self.network.board
                if (envelope.round, envelope.client) == (opened.inputs.round, self.client)
            ]
            self.honest.recall(opened.inputs.domain, said)
            self._recalled = opened.inputs.round
        if self.view.closed_at != opened.closed_at:
            self.view = replace(self.view, closed_at=opened.closed_at)
        self.view = self.network.grown(self.view, self._inbox[self._unread :])
        self._unread = len(self._inbox)
        return self.view

    def step(self, left: int | None = None, *, is_cut: bool = False) -> bool:
        """Take one step, and tell whether anything new came of it.

        Args:
            left: how many of its actions are carried out before the process dies; None for all.
            is_cut: it dies before anything was durable, so that nothing leaves.
        """
        view = self.look()
        if view is None:
            return False
        actions = self.actor.step(view, self.network.now)
        if is_cut:
            self.restart()
            return False
        self.journal.sync()
        has_effect = False
        for action in actions if left is None else actions[:left]:
            if self.is_honest:
                self._require_sound(view, action)
            has_effect |= self.network.apply(action)
        if left is not None:
            self.restart()
        return has_effect

    def next_time(self) -> float | None:
        view = self.look()
        return None if view is None else self.actor.next_time(view, self.network.now)

    def _require_sound(self, view: RoundView, action: Action) -> None:
        """Hold an honest member to its word: one statement a place, stored before replied."""
        if isinstance(action, StoreBlobs):
            self.stored.update(blobs_in(action))
        if not isinstance(action, PostEnvelope) or action.envelope.client != self.client:
            return
        self.statements.hear(action.envelope)
        if isinstance(action.envelope.body, Reply):
            result = action.envelope.body.reply.vote.result
            missing = set(rests_on(view, result)) - self.stored
            assert not missing, "replied to what it has not stored"


def rests_on(view: RoundView, result: Digest) -> list[Digest]:
    """Return the blobs that a result rests on, by the record of a request that opens it."""
    for proposals in view.proposals.values():
        for proposal in proposals:
            if proposal.request.vote.result == result and proposal.record is not None:
                record = decode_record(proposal.record)
                malformed = [dropout.payload for dropout in record.dropouts if dropout.payload]
                vectors = [signed.scores.digest for signed in record.scores]
                return [sha256(proposal.record), *record.payloads().values(), *malformed, *vectors]
    raise AssertionError("nobody has seen the record behind this result")


def committee_of(
    network: Network, faults: Mapping[int, MemberFault] | None = None
) -> dict[ClientId, RunningMember]:
    return {
        client: RunningMember(network, client, fault=(faults or {}).get(place))
        for place, client in enumerate(network.chain.state.committee)
    }


def play(
    network: Network, members: Iterable[RunningMember], *, steps: int = 400, mines: bool = True
) -> None:
    """Deliver everything, let all step and time pass until the round ends, or nobody can act."""
    running = list(members)
    number = network.chain.state.round
    for _ in range(steps):
        for member in running:
            member.deliver()
        came = [member.step() for member in running]
        if mines and network.chain.pool:
            network.chain.mine(network.now)
        if not network.chain.is_open or network.chain.state.round != number:
            return
        if any(came):
            continue
        times = [time for member in running if (time := member.next_time()) is not None]
        if not times:
            return
        network.now = min(times)


def acts_of(client: int, journal: PowerCutJournal | None = None) -> ProtocolSteps:
    voice = ProtectedSigner(ClientId(client), signers()[client], journal or PowerCutJournal())
    return ProtocolSteps(voice, JudgementCache())


def seen(network: Network, actions: Iterable[Action]) -> RoundView:
    """Carry out actions, and return what somebody sees who gets everything."""
    for action in actions:
        network.apply(action)
    view = network.union()
    assert view is not None
    return view


def scored(network: Network, *members: int) -> RoundView:
    """Return the closed round with true vectors of these members, of all without any."""
    view = network.union() or network.close()
    view = seen(network, ())
    for member in members or view.inputs.participants.members:
        view = seen(network, acts_of(member).publish_scores(view, view.usable))
    return view


def requested(network: Network, number: int = 0) -> RoundView:
    """Return the scored round with the honest request of a view of phase 1."""
    view = scored(network)
    primary = view.primary(Phase.AGGREGATION, number)
    return seen(network, acts_of(primary).propose(view, number, view.usable))


def answered(network: Network, number: int, members: Sequence[int] = ()) -> RoundView:
    """Return the round with replies to the request of a view: of these, or of all others."""
    view = seen(network, ())
    (proposal,) = view.proposals[Phase.AGGREGATION, number]
    primary = proposal.request.member
    for member in members or [m for m in view.inputs.participants.members if m != primary]:
        view = seen(network, acts_of(member).answer(view, proposal, Holdings()))
    return view


def replied(network: Network) -> RoundView:
    """Return the round with a request of view 0 and the replies of all others."""
    requested(network)
    return answered(network, 0)


def elected(network: Network, number: int = 0) -> RoundView:
    """Return the round with a certificate of a view of phase 2, and one of phase 1."""
    view = network.union()
    if view is None or not view.certificates(Phase.AGGREGATION):
        view = replied(network)
    primary = view.primary(Phase.ELECTION, number)
    certificate = view.certificates(Phase.AGGREGATION)[-1]
    view = seen(network, acts_of(primary).propose_election(view, number, certificate))
    (proposal,) = view.proposals[Phase.ELECTION, number]
    for member in view.inputs.participants.members:
        if member != primary:
            view = seen(network, acts_of(member).answer_election(view, proposal))
    return view


def self_ban(network: Network, client: ClientId) -> SendReport:
    return SendReport(OpenRound.of(network.chain.state, signers()).equivocation(client))


def with_empty_seat() -> Network:
    """Return a network in round 2, in which the primary of view 0 of phase 1 is banned."""
    rehearsal = Network()
    rehearsal.close()
    play(rehearsal, committee_of(rehearsal).values())
    state = rehearsal.chain.state
    place = primary_seat(state.seed, Phase.AGGREGATION, 0, len(state.committee))
    network = Network()
    network.close()
    network.chain.send(self_ban(network, state.committee[place]))
    network.chain.mine(network.now)
    play(network, committee_of(network).values())
    assert network.chain.state.committee == state.committee
    return network


def blobs_in(action: StoreBlobs) -> dict[Digest, Payload]:
    return {blob.digest: blob for blob in (*action.payloads.values(), *action.documents)}


def envelopes_in(actions: Iterable[Action]) -> list[Envelope]:
    return [action.envelope for action in actions if isinstance(action, PostEnvelope)]


def signed_vote(
    client: int, vote: Vote, domain: Domain = DOMAIN, key: int | None = None
) -> SignedVote:
    """Return a vote with a signature, of its own member if no other key is named."""
    return OpenRound(domain, signers()).vote(vote, client, key)


def published(client: int, scores: Scores, data: bytes, key: int | None = None) -> PublishedScores:
    signature = OpenRound(DOMAIN, signers()).sign(scores, client if key is None else key)
    return PublishedScores(SignedScores(scores, signature), data)
