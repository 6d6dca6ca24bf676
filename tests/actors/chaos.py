"""Everything that can happen to a round, as a state machine; what must hold is checked always."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clients.adversaries.faults import MemberFault
from ledger.actors.participants import reports_of
from ledger.actors.steps import (
    JudgementCache,
    PostEnvelope,
    SendCommitment,
    SendDecision,
    decision_of,
    incidents_of,
    settlement_of,
)
from ledger.actors.view import RoundView, view_at
from ledger.protocol.documents.envelope import (
    Body,
    Envelope,
    EnvelopeKind,
    Proposal,
    PublishedPayload,
    PublishedScores,
    Reply,
)
from ledger.protocol.encoding import sha256, vector_bytes
from ledger.protocol.ledger_state import ClientBanned, RoundDecided
from ledger.protocol.parameters import MAX_VIEWS, majority
from ledger.protocol.types import NO_DIGEST, ClientId, Phase
from tests.actors.specification_chain import SendAbandonment
from tests.actors.support import (
    PARAMETERS,
    Network,
    RunningMember,
    play,
    self_ban,
    signed_commitment,
    update_of,
)
from tests.support.keys import DOMAIN

VARIANTS = (PARAMETERS, replace(PARAMETERS, strategy=3))
MOST_ADVERSARIES = 2
"""With one more seat than these, somebody honest is among those who replied to anything."""

BAD_PAYLOADS = (b"", bytes(31), b"\xff" * 32)
"""No update, one of the wrong length, one that is not finite."""

clients = st.integers(0, PARAMETERS.clients - 1)
crowds = st.sets(clients, min_size=1)
losses = st.just(0) | st.integers(0, 2**31 - 1)
"""A bit for each pair of envelope and process, as `is_lost` reads them; 0 loses nothing."""


def is_lost(lost: int, index: int, place: int) -> bool:
    """Say whether an envelope of the board does not reach a process this time."""
    return bool(lost >> ((7 * index + 3 * place) % 31) & 1)


class Chaos(RuleBasedStateMachine):
    """Clients, members and a chain, with every interleaving that a network could bring about."""

    network: Network
    most_adversaries = MOST_ADVERSARIES

    def __init__(self) -> None:
        super().__init__()
        self.running: dict[ClientId, list[RunningMember]] = {}
        self.adversaries: dict[ClientId, MemberFault] = {}
        self.sent: list[SendDecision] = []
        self.judged: set[bytes] = set()

    @initialize(
        variant=st.sampled_from(VARIANTS),
        depth=st.sampled_from([0, 0, 2]),
        adversaries=st.dictionaries(
            clients.map(ClientId), st.sampled_from(MemberFault), max_size=MOST_ADVERSARIES
        ),
        of_committee=st.dictionaries(
            st.integers(0, 4), st.sampled_from(MemberFault), max_size=MOST_ADVERSARIES
        ),
        on_time=st.sampled_from([True, True, True, False]),
        beats=st.sampled_from([0, 3, 4, 5, 6, 8, 12]),
        absent=st.sets(st.integers(0, 4), max_size=1),
        lost=losses,
    )
    def open(
        self,
        variant: object,
        depth: int,
        adversaries: dict[ClientId, MemberFault],
        of_committee: dict[int, MemberFault],
        on_time: bool,
        beats: int,
        absent: set[int],
        lost: int,
    ) -> None:
        """Begin in the middle of a round: nothing is said yet, or the votes are nearly over."""
        assert isinstance(variant, type(PARAMETERS))
        self.network = Network(variant, depth=depth)
        seats = self.network.chain.state.committee
        wanted = {seats[place]: fault for place, fault in of_committee.items()} | adversaries
        self.adversaries = dict(list(wanted.items())[: self.most_adversaries])
        for client, fault in self.adversaries.items():
            if fault is MemberFault.FALSE_REFERENCE:
                for number in range(1, PARAMETERS.rounds + 1):
                    wild = vector_bytes(100 * update_of(number, client))
                    self.network.payloads[number, client] = wild
        if on_time:
            self.network.close()
            self.the_committee_works(beats, absent, lost)

    # Who is there.

    def seats(self) -> list[RunningMember]:
        """Return all processes of the open round's members, started on first sight."""
        chain = self.network.chain.view()
        if chain is None:
            return []
        for client in chain.participants().members:
            fault = self.adversaries.get(client)
            if client not in self.running:
                self.running[client] = [RunningMember(self.network, client, fault=fault)]
        return [process for m in chain.committee for process in self.running.get(m, [])]

    def one(self, place: int) -> RunningMember | None:
        seats = self.seats()
        return seats[place % len(seats)] if seats else None

    def leader(self) -> RunningMember | None:
        """Return a process of the primary of the present view of phase 1."""
        view = self.network.union()
        if view is None:
            return None
        begin = view.closed_at + view.inputs.parameters.view_seconds
        span = view_at(view.inputs, Phase.AGGREGATION, begin, self.network.now)
        primary = view.primary(Phase.AGGREGATION, span.view if span is not None else 0)
        return next((one for one in self.seats() if one.client == primary), None)

    def is_open(self) -> bool:
        return self.network.chain.is_open

    # The chain.

    @precondition(lambda self: self.is_open())
    @rule(who=crowds)
    def some_commit(self, who: set[int]) -> None:
        if self.network.chain.view() is not None:
            self.network.commit(*who)

    @precondition(lambda self: self.is_open())
    @rule(who=clients, other=clients, is_copied=st.booleans())
    def an_adversary_commits_anything(self, who: int, other: int, is_copied: bool) -> None:
        chain = self.network.chain.view()
        if chain is None or who not in self.adversaries:
            return
        words = [mined.commitment for mined in chain.commitments] or [NO_DIGEST]
        word = words[other % len(words)] if is_copied else sha256(b"%d" % other)
        self.network.apply(SendCommitment(signed_commitment(chain, who, word)))

    @precondition(lambda self: self.is_open())
    @rule(kept=st.sets(st.integers(0, 30), max_size=6), blocks=st.integers(1, 3))
    def blocks_are_mined(self, kept: set[int], blocks: int) -> None:
        """Mine all that waits but some transactions, then perhaps more blocks."""
        chain = self.network.chain
        chain.mine(self.network.now, [t for i, t in enumerate(chain.pool) if i not in kept])
        chain.mine_to(chain.head.number + blocks - 1, self.network.now)

    @rule(blocks=st.integers(1, 6), again=st.booleans(), is_backwards=st.booleans())
    def the_chain_is_reorganised(self, blocks: int, again: bool, is_backwards: bool) -> None:
        """Take blocks back, also final ones, but none before the one that opened the round."""
        chain = self.network.chain
        opened = max(chain.state.opened_block, 1 + chain.depth)
        taken_back = min(blocks, chain.head.number - opened)
        chain.reorganise(taken_back)
        if is_backwards:
            chain.pool.reverse()
        if again and taken_back:
            chain.mine(self.network.now)
            chain.mine_to(opened + taken_back, self.network.now)

    @precondition(lambda self: self.is_open())
    @rule()
    def all_commit_and_publish(self) -> None:
        chain = self.network.chain.view()
        if chain is None:
            return
        able = sorted(chain.participants().expected)
        self.network.commit(*able)
        self.network.chain.mine(self.network.now)
        last = self.network.chain.head.number + self.network.chain.depth
        self.network.chain.mine_to(last, self.network.now)
        self.some_publish(set(able))

    @precondition(lambda self: self.is_open())
    @rule()
    def the_window_passes(self) -> None:
        chain = self.network.chain
        opened = chain.state.opened_block
        chain.mine(self.network.now)
        chain.mine_to(opened + chain.parameters.commit_blocks + chain.depth, self.network.now)

    # Payloads.

    @rule(who=crowds)
    def some_publish(self, who: set[int]) -> None:
        if self.network.opened() is not None:
            self.network.publish(*who)

    @precondition(lambda self: self.is_open())
    @rule(who=clients)
    def one_publishes_early(self, who: int) -> None:
        number = self.network.chain.state.round
        payload = self.network.payload(number, who)
        self.network.store(payload)
        body = PublishedPayload(sha256(payload))
        self.network.apply(PostEnvelope(Envelope(DOMAIN, number, ClientId(who), body)))

    @precondition(lambda self: self.is_open())
    @rule(who=clients, payload=st.sampled_from(BAD_PAYLOADS))
    def an_adversary_has_no_update(self, who: int, payload: bytes) -> None:
        if who in self.adversaries:
            self.network.payloads.setdefault((self.network.chain.state.round, who), payload)

    # Messages and time.

    @rule(place=st.integers(0, 9), picks=st.lists(st.integers(0, 40), max_size=8))
    def some_are_delivered(self, place: int, picks: list[int]) -> None:
        """Deliver some envelopes to one process: in any order, some of them again."""
        member, board = self.one(place), len(self.network.board)
        if member is not None and board:
            member.deliver([max(0, board - 1 - pick) for pick in picks])

    @rule(places=st.sets(st.integers(0, 9), min_size=1))
    def all_are_delivered(self, places: set[int]) -> None:
        for place in sorted(places):
            member = self.one(place)
            if member is not None:
                member.deliver()

    @rule(eighths=st.integers(1, 16))
    def time_passes(self, eighths: int) -> None:
        self.network.now += eighths * PARAMETERS.view_seconds / 8

    @rule(place=st.integers(0, 9))
    def it_is_somebodys_time(self, place: int) -> None:
        member = self.one(place)
        later = member.next_time() if member is not None else None
        if later is not None:
            self.network.now = later

    # Members.

    @rule(places=st.sets(st.integers(0, 9), min_size=1))
    def some_step(self, places: set[int]) -> None:
        for place in sorted(places):
            member = self.one(place)
            if member is not None:
                member.step()

    @rule(times=st.integers(1, 8), absent=st.sets(st.integers(0, 9), max_size=2), lost=losses)
    def the_committee_works(self, times: int, absent: set[int], lost: int) -> None:
        """Let those who are there step, and time pass; each loses envelopes of its own.

        Args:
            lost: a bit for each pair of envelope and process.
        """
        for _ in range(times):
            here = [(p, one) for p, one in enumerate(self.seats()) if p not in absent]
            came = []
            for place, member in here:
                member.deliver([i for i in member.missing() if not is_lost(lost, i, place)])
                came.append(member.step())
            later = [time for _, one in here if (time := one.next_time()) is not None]
            if later and not any(came):
                self.network.now = min(later)

    @rule(absent=st.sets(st.integers(0, 9), max_size=2))
    def a_view_passes(self, absent: set[int]) -> None:
        """Lose nothing for some steps in which time goes on, but for who is absent."""
        for _ in range(6):
            here = [one for place, one in enumerate(self.seats()) if place not in absent]
            for member in here:
                member.deliver()
            came = [member.step() for member in here]
            later = [time for one in here if (time := one.next_time()) is not None]
            if later and not any(came):
                self.network.now = min(later)

    @precondition(lambda self: self.is_open())
    @rule(lost=losses)
    def a_round_begins_with_losses(self, lost: int) -> None:
        """Close the round, and let its first vectors and payloads reach only some."""
        self.all_commit_and_publish()
        self.the_committee_works(3, set(), lost)

    @rule(place=st.integers(0, 9), left=st.none() | st.integers(0, 3))
    def one_dies_in_a_step(self, place: int, left: int | None) -> None:
        """Kill a process before anything is durable, or when some of it has left."""
        member = self.one(place)
        if member is not None:
            member.step(left, is_cut=left is None)

    @rule(place=st.integers(0, 9))
    def one_restarts(self, place: int) -> None:
        member = self.one(place)
        if member is not None:
            member.restart()

    @rule(place=st.integers(0, 9))
    def one_is_backed_up(self, place: int) -> None:
        member = self.one(place)
        if member is not None:
            member.backups.append(member.journal.backup())

    @rule(place=st.integers(0, 9), pick=st.integers(0, 9), mailbox_is_readable=st.booleans())
    def a_backup_is_restored(self, place: int, pick: int, mailbox_is_readable: bool) -> None:
        """Restore an older journal, the empty one that it began with at worst."""
        member = self.one(place)
        if member is not None:
            backup = member.backups[pick % len(member.backups)]
            for process in self.running[member.client]:
                process.restore(backup, mailbox_is_readable=mailbox_is_readable)

    @rule(
        place=st.integers(0, 9),
        pick=st.integers(0, 9),
        times=st.integers(1, 4),
        lost=losses,
        leads=st.booleans(),
    )
    def one_acts_is_restored_and_acts_again(
        self, place: int, pick: int, times: int, lost: int, leads: bool
    ) -> None:
        """Restore an older journal after a step; then nothing of what was said before is seen."""
        member = self.leader() if leads else self.one(place)
        if member is None:
            return
        member.deliver()
        member.step()
        backup = member.backups[pick % len(member.backups)]
        for process in self.running[member.client]:
            process.restore(backup, mailbox_is_readable=True)
        board = self.network.board
        others = [
            index
            for index in member.missing()
            if board[index].client != member.client or board[index].kind is EnvelopeKind.PAYLOAD
        ]
        member.deliver([index for index in others if not is_lost(lost, index, place)])
        for _ in range(times):
            member.step()
            self.network.now = member.next_time() or self.network.now

    @rule(place=st.integers(0, 9))
    def one_runs_twice_on_one_journal(self, place: int) -> None:
        member = self.one(place)
        if member is not None and len(self.running[member.client]) == 1:
            self.running[member.client].append(member.twin())

    # What anybody sends.

    @rule(who=clients)
    def an_adversary_bans_itself(self, who: int) -> None:
        if who not in self.adversaries:
            return
        self.network.chain.send(self_ban(self.network, ClientId(who)))

    @precondition(lambda self: self.network.board)
    @rule(pick=st.integers(0, 40))
    def somebody_forges_what_another_has_said(self, pick: int) -> None:
        """Post something else under the name and the signature of whoever sent one of the last."""
        board = self.network.board
        envelope = board[-1 - pick % len(board)]
        match envelope.body:
            case PublishedScores(signed, _):
                claim = replace(signed.scores, digest=sha256(b"forged"))
                body: Body = PublishedScores(replace(signed, scores=claim), b"forged")
            case Reply(signed):
                vote = replace(signed.vote, set_digest=NO_DIGEST)
                body = Reply(replace(signed, vote=vote))
            case Proposal(request=signed) as proposal:
                vote = replace(signed.vote, set_digest=NO_DIGEST)
                body = replace(proposal, request=replace(signed, vote=vote))
            case _:
                body = PublishedPayload(sha256(b"forged"))
        self.network.apply(PostEnvelope(replace(envelope, body=body)))

    @rule()
    def somebody_reports_all_that_is_proven(self) -> None:
        view = self.network.union()
        for report in reports_of(view) if view is not None else []:
            self.network.chain.send(report)

    @rule()
    def somebody_sends_the_decision(self) -> None:
        """Send what the committee has certified, with all that ever left, and keep it for later."""
        view, judge = self.network.union(), JudgementCache()
        settlement = settlement_of(view, judge) if view is not None else None
        if view is None or settlement is None:
            return
        self.network.store(vector_bytes(settlement.judgement.model))
        digest, incidents = incidents_of(view, judge, settlement)
        self.network.store(incidents or b"")
        decision = decision_of(view, settlement, digest)
        self.sent.append(SendDecision(view.inputs.round, *decision))
        self.network.apply(self.sent[-1])

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 9))
    def somebody_sends_an_old_decision(self, pick: int) -> None:
        self.network.apply(self.sent[pick % len(self.sent)])

    @precondition(lambda self: self.is_open())
    @rule()
    def somebody_wants_to_abandon(self) -> None:
        self.network.chain.send(SendAbandonment(self.network.chain.state.round))

    # What must hold, whatever happened. What an honest key signed, and that a member had stored
    # what it replied to, is checked when it leaves: see `RunningMember`.

    @invariant()
    def nobody_honest_is_banned(self) -> None:
        banned = {e.client for e in self.network.chain.events if isinstance(e, ClientBanned)}
        assert banned <= set(self.adversaries)

    @invariant()
    def nothing_proves_that_somebody_honest_equivocated(self) -> None:
        view = self.network.union()
        accused = {report.client for report in view.equivocations()} if view is not None else set()
        assert accused <= set(self.adversaries)

    @invariant()
    def every_decision_is_right(self) -> None:
        before = self.network.chain.blocks[0].state
        for block in self.network.chain.blocks:
            for event in block.events:
                if isinstance(event, RoundDecided) and event.head not in self.judged:
                    self.network.require_right(event, before)
                    self.judged.add(event.head)
            before = block.state


class ChaosThenCalm(Chaos):
    """After the chaos everything is delivered and time passes: the open round has to end well."""

    most_adversaries = 1

    def teardown(self) -> None:
        if hasattr(self, "network") and self.is_open():
            self.calm()

    def calm(self) -> None:
        network, chain = self.network, self.network.chain
        chain.mine(network.now)
        chain.mine_to(chain.head.number + chain.depth, network.now)
        if not self.is_open():
            return
        number, opened = chain.state.round, chain.state.opened_block
        deadline = opened + chain.parameters.deadline_blocks
        chain.mine_to(opened + chain.parameters.commit_blocks + chain.depth, network.now)
        view = network.opened()
        if chain.state.round != number or deadline - chain.head.number < 10 or view is None:
            return
        network.publish(*view.inputs.participants.active)
        members = [one for one in self.seats() if one.abstaining != number]
        able = {one.client for one in members if one.is_honest}
        has_views = self.has_views_left(view, able)
        play(network, members)
        if chain.state.round == number and chain.is_open:
            assert not (has_views and self.could_be_decided(able)), "nobody ended the round"
            chain.mine_to(deadline - 1, network.now)
            chain.send(SendAbandonment(number))
            assert not chain.mine(network.now).refused

    def has_views_left(self, view: RoundView, able: set[ClientId]) -> bool:
        """Return whether an honest member still leads a view, or the aggregation is certified."""
        seen = self.network.union()
        if seen is not None and seen.certificates(Phase.AGGREGATION):
            return True
        inputs, begin = view.inputs, view.voting_begins
        span = view_at(inputs, Phase.AGGREGATION, begin, max(begin, self.network.now))
        later = range(0) if span is None else range(span.view + 1, MAX_VIEWS)
        return any(view.primary(Phase.AGGREGATION, number) in able for number in later)

    def could_be_decided(self, able: set[ClientId]) -> bool:
        """Say whether enough honest members are up, and enough updates and scorers there."""
        view = self.network.union()
        assert view is not None
        parameters, who = view.inputs.parameters, view.inputs.participants
        ranked = set(view.usable).intersection(who.trainers)
        scorers = able.intersection(view.usable)
        return (
            len(able) > parameters.replies
            and len(ranked) >= parameters.members
            and len(scorers) >= majority(parameters.members)
        )
