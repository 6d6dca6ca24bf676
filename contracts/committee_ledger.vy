# pragma version 0.4.3
# @title The ledger of committee-based federated learning (CMFL)
# @notice Enforces and records every decision of a run: registry, commitments to updates, ranking,
#         aggregation set, model, both certificates of the vote, next committee. It has no owner,
#         no upgrade and no pause. The executable specification is ledger/protocol/rounds.py; a
#         refusal's reason is the sentence of the error class there.
# @dev Layout: parameters are immutables; a round's flags are overwritten, not cleared, because a
#      new word costs 22,100 gas and an overwritten one 5,000.

import ballots
import ranking as rankings

initializes: ballots

MAX_CLIENTS: constant(uint256) = 12_288
MAX_TRAINERS: constant(uint256) = 256
MAX_MEMBERS: constant(uint256) = 160
MAX_BATCH: constant(uint256) = 256
MAX_COMMITMENTS: constant(uint256) = 256
MAX_DRAWS: constant(uint256) = 4_096

# One word of flags: the round in the upper 32 bits, 224 clients below.
FLAGS: constant(uint256) = 224
FLAG_WORDS: constant(uint256) = 55
MAX_ROUNDS: constant(uint64) = 2**32 - 1

CLIENT_MASK: constant(uint256) = 2**32 - 1
SAMPLES_MASK: constant(uint256) = 2**64 - 1
# Bit pattern of +infinity, 0x7FF0000000000000.
INFINITY_BITS: constant(uint256) = 2047 * 2**52
STRATEGY_WITHIN_SPREAD: constant(uint8) = 3

REGISTERING: constant(uint8) = 0
OPEN: constant(uint8) = 1
FINISHED: constant(uint8) = 2

# The bit of `progress` that says that the digest of commitments is of the open round.
COMMITTED: constant(uint256) = 2**160

AGGREGATION: constant(uint8) = 1
ELECTION: constant(uint8) = 2


struct Deployment:
    config: bytes32
    registry: bytes32
    clients: uint256
    trainers: uint256
    members: uint256
    aggregation_ppm: uint256
    strategy: uint8
    rounds: uint64
    deadline_blocks: uint64
    block_beacon: bool
    model: bytes32


struct Outcome:
    model: bytes32
    updates_root: bytes32
    scores_root: bytes32
    threshold_bits: uint64
    record: bytes32


struct Certificate:
    voted_view: uint32
    timestamp: uint64
    set_digest: bytes32
    r: bytes32
    vs: bytes32
    signers: uint256


struct SignedVote:
    timestamp: uint64
    set_digest: bytes32
    result: bytes32
    r: bytes32
    vs: bytes32


struct State:
    stage: uint8
    round: uint64
    opened_block: uint64
    seed: bytes32
    committee: bytes32
    model: bytes32
    head: bytes32
    registered: uint256
    registry_rest: bytes32
    commitments: bytes32


# Places of a ranking: from the first on, so many.
struct Places:
    first: uint256
    size: uint256


event ClientsRegistered:
    first: uint256
    words: DynArray[uint256, MAX_BATCH]


event LedgerOpened:
    config: bytes32
    seed: bytes32
    committee: DynArray[uint256, MAX_MEMBERS]
    model: bytes32


event UpdatesCommitted:
    round: indexed(uint64)
    commitments: DynArray[ballots.Commitment, MAX_COMMITMENTS]


event RoundDecided:
    round: indexed(uint64)
    ranking: DynArray[uint256, MAX_TRAINERS]
    accepted: Places
    next_committee: Places
    model: bytes32
    updates_root: bytes32
    scores_root: bytes32
    threshold_bits: uint64
    record: bytes32
    views: uint32[2]
    primaries: uint256[2]
    signers: uint256[2]
    next_seed: bytes32
    head: bytes32


event RoundAbandoned:
    round: indexed(uint64)
    next_committee: DynArray[uint256, MAX_MEMBERS]
    next_seed: bytes32
    head: bytes32


event ClientBanned:
    round: indexed(uint64)
    client: indexed(uint256)
    head: bytes32


CONFIG: immutable(bytes32)
REGISTRY: immutable(bytes32)
CLIENTS: immutable(uint256)
TRAINERS: immutable(uint256)
MEMBERS: immutable(uint256)
AGGREGATION_PPM: immutable(uint256)
STRATEGY: immutable(uint8)
ROUNDS: immutable(uint64)
DEADLINE_BLOCKS: immutable(uint64)
BLOCK_BEACON: immutable(bool)
FIRST_MODEL: immutable(bytes32)

# stage, round, block in which it opened, whether anybody has committed in it: see _pack.
progress: uint256
seed: bytes32
committee_digest: bytes32
model: bytes32
head: bytes32
commitments: bytes32

registry_rest: bytes32
registered: uint256
last_address: uint256
first_committee: DynArray[uint256, MAX_MEMBERS]

# address << 64 | samples; bit 255 is the ban.
registry: uint256[MAX_CLIENTS]
committed: uint256[FLAG_WORDS]


@deploy
def __init__(deployment: Deployment, committee: DynArray[uint256, MAX_MEMBERS]):
    ballots.__init__()
    assert deployment.members >= 3, "committee_ledger: a committee needs three members"
    assert deployment.members <= MAX_MEMBERS, "committee_ledger: too many members"
    assert deployment.trainers >= deployment.members, "committee_ledger: too few trainers"
    assert deployment.trainers <= MAX_TRAINERS, "committee_ledger: too many trainers"
    assert deployment.clients >= deployment.members + deployment.trainers, "committee_ledger: too few clients"
    assert deployment.clients <= MAX_CLIENTS, "committee_ledger: too many clients"
    assert deployment.aggregation_ppm <= 1_000_000, "committee_ledger: more are accepted than train"
    assert deployment.strategy in [1, 2, 3], "committee_ledger: strategy is unknown"
    assert deployment.rounds > 0, "committee_ledger: there is no round"
    assert deployment.rounds <= MAX_ROUNDS, "committee_ledger: too many rounds"
    assert deployment.deadline_blocks > 0, "committee_ledger: there is no deadline"
    assert len(committee) == deployment.members, "committee_ledger: first committee has another size"
    seen: uint256[FLAG_WORDS] = empty(uint256[FLAG_WORDS])
    for client: uint256 in committee:
        assert client < deployment.clients, "committee_ledger: client is unknown"
        flag: uint256 = 1 << (client % FLAGS)
        assert seen[client // FLAGS] & flag == 0, "committee_ledger: first committee repeats a client"
        seen[client // FLAGS] |= flag

    CONFIG = deployment.config
    REGISTRY = deployment.registry
    CLIENTS = deployment.clients
    TRAINERS = deployment.trainers
    MEMBERS = deployment.members
    AGGREGATION_PPM = deployment.aggregation_ppm
    STRATEGY = deployment.strategy
    ROUNDS = deployment.rounds
    DEADLINE_BLOCKS = deployment.deadline_blocks
    BLOCK_BEACON = deployment.block_beacon
    FIRST_MODEL = deployment.model

    self.first_committee = committee
    self.registry_rest = deployment.registry
    self.model = deployment.model
    self.head = deployment.config


@external
def register_clients(words: DynArray[uint256, MAX_BATCH], rest: bytes32):
    """
    @notice Register the next batch of clients; the last batch opens round 1. Anyone may send it:
            the deployment fixed the clients by digest.
    @param words address << 64 | samples of each client, addresses strictly ascending
    @param rest Digest of the batches after this one, zero after the last
    """
    assert self._stage(self.progress) == REGISTERING, "committee_ledger: registration is closed"
    assert keccak256(abi_encode(words, rest)) == self.registry_rest, "committee_ledger: clients do not match the registry digest"
    first: uint256 = self.registered
    count: uint256 = first + len(words)
    assert count <= CLIENTS and (rest == empty(bytes32)) == (count == CLIENTS), "committee_ledger: registry does not end at its last client"
    previous: uint256 = self.last_address
    position: uint256 = first
    for word: uint256 in words:
        assert word >> 224 == 0 and word & SAMPLES_MASK != 0, "committee_ledger: client record is malformed"
        assert word >> 64 > previous, "committee_ledger: clients are not strictly ascending by address"
        previous = word >> 64
        self.registry[position] = word
        position += 1
    self.last_address = previous
    self.registered = count
    self.registry_rest = rest
    log ClientsRegistered(first=first, words=words)

    if count == CLIENTS:
        seed: bytes32 = keccak256(concat(CONFIG, self._beacon()))
        committee: DynArray[uint256, MAX_MEMBERS] = self.first_committee
        self.seed = seed
        self.committee_digest = keccak256(abi_encode(committee))
        self.progress = self._pack(OPEN, 1, convert(block.number, uint64))
        log LedgerOpened(config=CONFIG, seed=seed, committee=committee, model=FIRST_MODEL)


@external
def commit_updates(
    round: uint64,
    commitments: DynArray[ballots.Commitment, MAX_COMMITMENTS],
    signatures: DynArray[ballots.Signature, MAX_COMMITMENTS],
):
    """
    @notice Take signed commitments to updates of this round; anyone may carry them.
    @param round The round that they are for
    @param commitments Client, and sha256 of its payload, of each
    @param signatures The client's signature of each
    """
    progress: uint256 = self._require_open(round)
    assert len(commitments) != 0, "committee_ledger: no commitments are given"
    assert len(signatures) == len(commitments), "committee_ledger: signatures do not match the signers"
    tag: uint256 = convert(round, uint256)
    clients: uint256 = CLIENTS
    # Flags are kept in memory and written once per word: those of 224 clients from `first` on.
    # The initial value lies so high that every client is outside.
    first: uint256 = 2**255
    place: uint256 = 0
    flags: uint256 = 0
    digest: bytes32 = self._commitments(progress)
    position: uint256 = 0
    for commitment: ballots.Commitment in commitments:
        assert commitment.client < clients, "committee_ledger: client is unknown"
        registered: uint256 = self.registry[commitment.client]
        assert registered >> 255 == 0, "committee_ledger: client is banned"
        # Wraps around below `first`, and is then too large as well.
        offset: uint256 = unsafe_sub(commitment.client, first)
        if offset >= FLAGS:
            if position != 0:
                self.committed[place] = flags
            place = commitment.client // FLAGS
            offset = commitment.client % FLAGS
            first = unsafe_sub(commitment.client, offset)
            flags = self._flags(place, tag)
        assert flags >> offset & 1 == 0, "committee_ledger: client has committed already"
        flags |= 1 << offset
        assert ballots._committer(round, commitment, signatures[position]) == registered >> 64, "committee_ledger: commitment is not signed by its client"
        digest = keccak256(
            concat(
                digest,
                convert(convert(commitment.client, uint32), bytes4),
                commitment.payload,
            )
        )
        position = unsafe_add(position, 1)
    self.committed[place] = flags
    self.commitments = digest
    # From the round's second transaction on this writes what is there, which is nearly free.
    self.progress = progress | COMMITTED
    log UpdatesCommitted(round=round, commitments=commitments)


@external
def decide(
    round: uint64,
    committee: DynArray[uint256, MAX_MEMBERS],
    ranking: DynArray[uint256, MAX_TRAINERS],
    outcome: Outcome,
    aggregation: Certificate,
    aggregation_replies: DynArray[ballots.Signature, MAX_MEMBERS],
    election: Certificate,
    election_replies: DynArray[ballots.Signature, MAX_MEMBERS],
):
    """
    @notice Record a round: S_a and the next committee follow from the ranking, and both must be
            certified by the committee. Anyone may send it: the signatures speak for themselves.
    @param round The round that is decided
    @param committee S_c, by places
    @param ranking Ranking words of the trainers, best first
    @param outcome Digests that the ranking rests on and leads to
    @param aggregation Certificate for S_a and the aggregate
    @param aggregation_replies Its replies, by ascending place
    @param election Certificate for the next committee
    @param election_replies Its replies, by ascending place
    """
    self._require_open(round)
    assert keccak256(abi_encode(committee)) == self.committee_digest, "committee_ledger: committee is not the elected one"
    self._require_ranking(round, committee, ranking)
    threshold: uint256 = convert(outcome.threshold_bits, uint256)
    if STRATEGY == STRATEGY_WITHIN_SPREAD:
        assert threshold < INFINITY_BITS, "committee_ledger: threshold is not finite"
    else:
        assert threshold == 0, "committee_ledger: threshold is given but the strategy uses none"

    accepted: Places = empty(Places)
    accepted.first, accepted.size = rankings._accepted(ranking, STRATEGY, AGGREGATION_PPM, threshold)
    elected: Places = Places(first=(len(ranking) - MEMBERS) // 2, size=MEMBERS)
    accepted_digest: bytes32 = rankings._digest(rankings._clients(ranking, accepted.first, accepted.size))
    next_digest: bytes32 = rankings._digest(rankings._clients(ranking, elected.first, elected.size))
    result: bytes32 = keccak256(
        abi_encode(
            outcome.model,
            outcome.updates_root,
            outcome.scores_root,
            keccak256(abi_encode(ranking)),
            outcome.threshold_bits,
        )
    )
    seed: bytes32 = self.seed
    assert aggregation.set_digest == accepted_digest, "committee_ledger: aggregation set is not the one that the ranking gives"
    first_primary: uint256 = self._require_certificate(
        round, seed, AGGREGATION, committee, aggregation, aggregation_replies, result
    )
    assert election.set_digest == next_digest, "committee_ledger: next committee is not the middle of the ranking"
    second_primary: uint256 = self._require_certificate(
        round, seed, ELECTION, committee, election, election_replies, empty(bytes32)
    )

    head: bytes32 = keccak256(
        concat(
            self.head,
            convert(round, bytes8),
            seed,
            self.commitments,
            accepted_digest,
            next_digest,
            result,
        )
    )
    next_seed: bytes32 = keccak256(
        concat(seed, accepted_digest, result, next_digest, self._beacon())
    )
    self.model = outcome.model
    self._next_round(round, next_seed, next_digest, head)
    log RoundDecided(
        round=round,
        ranking=ranking,
        accepted=accepted,
        next_committee=elected,
        model=outcome.model,
        updates_root=outcome.updates_root,
        scores_root=outcome.scores_root,
        threshold_bits=outcome.threshold_bits,
        record=outcome.record,
        views=[aggregation.voted_view, election.voted_view],
        primaries=[first_primary, second_primary],
        signers=[aggregation.signers, election.signers],
        next_seed=next_seed,
        head=head,
    )


@external
def abandon_round(round: uint64):
    """
    @notice End an undecided round after its deadline: the model stays, and a fresh committee is
            drawn from the registry. Anyone may send it.
    @param round The round that is abandoned
    """
    progress: uint256 = self._require_open(round)
    deadline: uint256 = (progress >> 80 & SAMPLES_MASK) + convert(DEADLINE_BLOCKS, uint256)
    assert block.number >= deadline, "committee_ledger: deadline is not reached"
    seed: bytes32 = self.seed
    next_seed: bytes32 = keccak256(concat(seed, b"abandoned", self._beacon()))
    drawn: DynArray[uint256, MAX_MEMBERS] = []
    # Flags of who is drawn: looking through the list would cost a large committee its gas limit.
    taken: uint256[FLAG_WORDS] = empty(uint256[FLAG_WORDS])
    for draw: uint256 in range(MAX_DRAWS):
        if len(drawn) == MEMBERS:
            break
        word: bytes32 = keccak256(concat(next_seed, convert(convert(draw, uint32), bytes4)))
        client: uint256 = convert(word, uint256) % CLIENTS
        flag: uint256 = 1 << (client % FLAGS)
        if taken[client // FLAGS] & flag == 0 and self.registry[client] >> 255 == 0:
            taken[client // FLAGS] |= flag
            drawn.append(client)
    commitments: bytes32 = self._commitments(progress)
    digest: bytes32 = keccak256(abi_encode(drawn))
    head: bytes32 = keccak256(
        concat(self.head, convert(round, bytes8), seed, b"abandoned", commitments, digest)
    )
    self._next_round(round, next_seed, digest, head)
    if len(drawn) < MEMBERS:
        self.progress = (self.progress & ~convert(255, uint256)) | convert(FINISHED, uint256)
    log RoundAbandoned(round=round, next_committee=drawn, next_seed=next_seed, head=head)


@external
def report_equivocation(
    client: uint256,
    is_request: bool,
    round: uint64,
    phase: uint8,
    voted_view: uint32,
    first: SignedVote,
    second: SignedVote,
):
    """
    @notice Ban a client that signed two different votes for one round, phase and view. Anyone may
            send it. Membership is not asked: an honest client that is no member signs no vote.
    @param client The accused
    @param is_request Whether both votes are requests; they are replies otherwise
    @param round Round of both votes
    @param phase Phase of both votes
    @param voted_view View of both votes
    @param first One of them
    @param second The other
    """
    progress: uint256 = self.progress
    assert self._stage(progress) == OPEN, "committee_ledger: no round is open"
    assert client < CLIENTS, "committee_ledger: client is unknown"
    registered: uint256 = self.registry[client]
    assert registered >> 255 == 0, "committee_ledger: client is banned"
    one: bytes32 = ballots._vote_digest(
        is_request, round, phase, voted_view, first.timestamp, first.set_digest, first.result
    )
    other: bytes32 = ballots._vote_digest(
        is_request, round, phase, voted_view, second.timestamp, second.set_digest, second.result
    )
    assert one != other, "committee_ledger: votes are the same"
    signer: uint256 = ballots._signer(one, ballots.Signature(r=first.r, vs=first.vs))
    assert signer == registered >> 64, "committee_ledger: vote is not signed by the client"
    signer = ballots._signer(other, ballots.Signature(r=second.r, vs=second.vs))
    assert signer == registered >> 64, "committee_ledger: vote is not signed by the client"

    current: uint64 = self._round(progress)
    self.registry[client] = registered | 1 << 255
    # Without its commitment a banned trainer cannot be ranked any more.
    flags: uint256 = self._flags(client // FLAGS, convert(current, uint256))
    self.committed[client // FLAGS] = flags & ~(1 << (client % FLAGS))
    head: bytes32 = keccak256(
        concat(
            self.head,
            convert(current, bytes8),
            b"banned",
            convert(convert(client, uint32), bytes4),
        )
    )
    self.head = head
    log ClientBanned(round=current, client=client, head=head)


@external
@view
def deployment() -> Deployment:
    """
    @notice Everything that was fixed at deployment, but for the first committee.
    """
    return Deployment(
        config=CONFIG,
        registry=REGISTRY,
        clients=CLIENTS,
        trainers=TRAINERS,
        members=MEMBERS,
        aggregation_ppm=AGGREGATION_PPM,
        strategy=STRATEGY,
        rounds=ROUNDS,
        deadline_blocks=DEADLINE_BLOCKS,
        block_beacon=BLOCK_BEACON,
        model=FIRST_MODEL,
    )


@external
@view
def state() -> State:
    """
    @notice Where the deployment stands.
    """
    progress: uint256 = self.progress
    return State(
        stage=self._stage(progress),
        round=self._round(progress),
        opened_block=convert(progress >> 80 & SAMPLES_MASK, uint64),
        seed=self.seed,
        committee=self.committee_digest,
        model=self.model,
        head=self.head,
        registered=self.registered,
        registry_rest=self.registry_rest,
        commitments=self._commitments(progress),
    )


@external
@view
def client(index: uint256) -> uint256:
    """
    @notice A registered client: address << 64 | samples; bit 255 is the ban.
    """
    assert index < self.registered, "committee_ledger: client is unknown"
    return self.registry[index]


@external
@view
def has_committed(index: uint256) -> bool:
    """
    @notice Whether a client has committed to an update in the open round.
    """
    assert index < CLIENTS, "committee_ledger: client is unknown"
    # After the last round its flags are still there, and nothing will overwrite them.
    progress: uint256 = self.progress
    if self._stage(progress) != OPEN:
        return False
    return self._flags(index // FLAGS, convert(self._round(progress), uint256)) & 1 << (index % FLAGS) != 0


@internal
@view
def _require_open(round: uint64) -> uint256:
    """
    @return The progress, if this round is open.
    """
    progress: uint256 = self.progress
    assert self._stage(progress) == OPEN, "committee_ledger: no round is open"
    assert round == self._round(progress), "committee_ledger: wrong round"
    return progress


@internal
@view
def _require_ranking(
    round: uint64,
    committee: DynArray[uint256, MAX_MEMBERS],
    ranking: DynArray[uint256, MAX_TRAINERS],
):
    assert len(ranking) <= TRAINERS, "committee_ledger: more clients are ranked than train"
    assert len(ranking) >= MEMBERS, "committee_ledger: fewer clients are ranked than a committee needs"
    tag: uint256 = convert(round, uint256)
    clients: uint256 = CLIENTS
    # Flags of who may still be ranked. Zero where not read yet: what was read carries the round.
    rankable: uint256[FLAG_WORDS] = empty(uint256[FLAG_WORDS])
    for member: uint256 in committee:
        place: uint256 = member // FLAGS
        flags: uint256 = rankable[place]
        if flags == 0:
            flags = self._flags(place, tag)
        rankable[place] = flags & ~(1 << (member % FLAGS))
    # Zero is below no word; a first word of zero is in order.
    next_word: uint256 = 0
    for word: uint256 in ranking:
        assert word >= next_word, "committee_ledger: ranking is not sorted"
        client: uint256 = word & CLIENT_MASK
        assert client < clients, "committee_ledger: client is unknown"
        place: uint256 = client // FLAGS
        flag: uint256 = 1 << (client % FLAGS)
        flags: uint256 = rankable[place]
        if flags & flag == 0:
            if flags == 0:
                flags = self._flags(place, tag)
            if flags & flag == 0:
                assert client not in committee, "committee_ledger: client is a committee member"
                assert self._flags(place, tag) & flag == 0, "committee_ledger: client is ranked twice"
                raise "committee_ledger: client has not committed"
        rankable[place] = flags ^ flag
        # Cannot overflow: a known client's number is not 2**32 - 1.
        next_word = unsafe_add(word, 1)
    # The words ascend, so the last distance bounds them all.
    assert (next_word - 1) >> 32 < INFINITY_BITS, "committee_ledger: distance is not finite"


@internal
@view
def _require_certificate(
    round: uint64,
    seed: bytes32,
    phase: uint8,
    committee: DynArray[uint256, MAX_MEMBERS],
    certificate: Certificate,
    replies: DynArray[ballots.Signature, MAX_MEMBERS],
    result: bytes32,
) -> uint256:
    """
    @return The primary, if its request and a quorum of other members' replies are signed.
    """
    place: uint256 = ballots._primary_place(seed, phase, certificate.voted_view, MEMBERS)
    digest: bytes32 = ballots._vote_digest(
        True, round, phase, certificate.voted_view, certificate.timestamp, certificate.set_digest, result
    )
    primary: uint256 = committee[place]
    registered: uint256 = self.registry[primary]
    assert registered >> 255 == 0, "committee_ledger: member is banned"
    signer: uint256 = ballots._signer(digest, ballots.Signature(r=certificate.r, vs=certificate.vs))
    assert signer == registered >> 64, "committee_ledger: request is not signed by the primary of the view"

    signers: uint256 = certificate.signers
    assert signers >> MEMBERS == 0, "committee_ledger: signers are not places of the committee"
    assert signers >> place & 1 == 0, "committee_ledger: primary replies to itself"
    assert len(replies) >= MEMBERS // 2 + 1, "committee_ledger: quorum is not reached"

    digest = ballots._vote_digest(
        False, round, phase, certificate.voted_view, certificate.timestamp, certificate.set_digest, result
    )
    position: uint256 = 0
    for member: uint256 in committee:
        if signers == 0:
            break
        if signers & 1 != 0:
            assert position < len(replies), "committee_ledger: signatures do not match the signers"
            registered = self.registry[member]
            assert registered >> 255 == 0, "committee_ledger: member is banned"
            assert ballots._signer(digest, replies[position]) == registered >> 64, "committee_ledger: reply is not signed by its member"
            position = unsafe_add(position, 1)
        signers >>= 1
    assert position == len(replies), "committee_ledger: signatures do not match the signers"
    return primary


@internal
def _next_round(round: uint64, seed: bytes32, committee: bytes32, head: bytes32):
    self.seed = seed
    self.committee_digest = committee
    self.head = head
    if round == ROUNDS:
        self.progress = self._pack(FINISHED, round, convert(block.number, uint64))
    else:
        self.progress = self._pack(OPEN, round + 1, convert(block.number, uint64))


@internal
@view
def _flags(place: uint256, round: uint256) -> uint256:
    """
    @return The word of flags at this place, empty if it is of an earlier round.
    """
    flags: uint256 = self.committed[place]
    if flags >> FLAGS != round:
        return round << FLAGS
    return flags


@internal
@view
def _commitments(progress: uint256) -> bytes32:
    """
    @return The running digest, which is not cleared but overwritten by a round's first commitment.
    """
    if progress & COMMITTED == 0:
        return empty(bytes32)
    return self.commitments


@internal
@view
def _beacon() -> bytes32:
    if BLOCK_BEACON:
        return blockhash(block.number - 1)
    return empty(bytes32)


@internal
@pure
def _pack(stage: uint8, round: uint64, opened_block: uint64) -> uint256:
    return (
        convert(stage, uint256)
        | convert(round, uint256) << 8
        | convert(opened_block, uint256) << 80
    )


@internal
@pure
def _stage(progress: uint256) -> uint8:
    return convert(progress & 255, uint8)


@internal
@pure
def _round(progress: uint256) -> uint64:
    return convert(progress >> 8 & SAMPLES_MASK, uint64)
