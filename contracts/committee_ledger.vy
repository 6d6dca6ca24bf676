# pragma version 0.4.3
"""
@title The ledger of committee-based federated learning (CMFL)
@notice Enforces and records every decision of a run: registry, commitments to updates, ranking,
        aggregation set, model, both certificates of the vote, next committee. What its functions
        and events are for stands in ICommitteeLedger.vyi. The executable specification is
        ledger/protocol/rounds.py; a refusal's reason is the sentence of the error class there.
@dev Layout: parameters are immutables; a round's flags are overwritten, not cleared, because a
     new word costs 22,100 gas and an overwritten one 5,000.
"""

import ICommitteeLedger
import ballots
import ranking as rankings

implements: ICommitteeLedger
initializes: ballots

MAX_CLIENTS: constant(uint256) = 12_288
MAX_TRAINERS: constant(uint256) = 256
MAX_MEMBERS: constant(uint256) = 160
MAX_BATCH: constant(uint256) = 256
MAX_COMMITMENTS: constant(uint256) = 256
MAX_DRAWS: constant(uint256) = 4_096
MAX_ROUNDS: constant(uint64) = 2**32 - 1
MAX_BLOCKS: constant(uint64) = 2**32 - 1

# One word of flags: the round in the upper 32 bits, 224 clients below.
FLAGS: constant(uint256) = 224
FLAG_WORDS: constant(uint256) = 55

CLIENT_MASK: constant(uint256) = 2**32 - 1
SAMPLES_MASK: constant(uint256) = 2**64 - 1
BLOCK_MASK: constant(uint256) = 2**64 - 1
ADDRESS_MASK: constant(uint256) = 2**160 - 1
# Bit pattern of +infinity, 0x7FF0000000000000.
INFINITY_BITS: constant(uint256) = 2047 * 2**52

REGISTERING: constant(uint8) = 0
OPEN: constant(uint8) = 1
FINISHED: constant(uint8) = 2

# The bit of `progress` that says that the digest of commitments is of the open round.
COMMITTED: constant(uint256) = 2**160

AGGREGATION: constant(uint8) = 1
ELECTION: constant(uint8) = 2

REQUESTS: constant(uint8) = 1
REPLIES: constant(uint8) = 2
SCORES: constant(uint8) = 3

CONFIG: immutable(bytes32)
REGISTRY: immutable(bytes32)
CLIENTS: immutable(uint256)
TRAINERS: immutable(uint256)
MEMBERS: immutable(uint256)
AGGREGATION_PPM: immutable(uint256)
STRATEGY: immutable(uint8)
ROUNDS: immutable(uint64)
COMMIT_BLOCKS: immutable(uint64)
DEADLINE_BLOCKS: immutable(uint64)
REPLIES_NEEDED: immutable(uint256)
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

# round of the ban << 224 | address << 64 | samples
registry: uint256[MAX_CLIENTS]
committed: uint256[FLAG_WORDS]


@deploy
def __init__(fixed: ICommitteeLedger.Deployment):
    """
    @notice Fix everything that never changes; the clients come next (register_clients).
    @param fixed The deployment; ICommitteeLedger says what each field is
    """
    assert fixed.members >= 3, "committee_ledger: a committee needs three members"
    assert fixed.members <= MAX_MEMBERS, "committee_ledger: too many members"
    assert fixed.trainers >= fixed.members, "committee_ledger: too few trainers"
    assert fixed.trainers <= MAX_TRAINERS, "committee_ledger: too many trainers"
    assert fixed.clients >= fixed.members + fixed.trainers, "committee_ledger: too few clients"
    assert fixed.clients <= MAX_CLIENTS, "committee_ledger: too many clients"
    assert fixed.aggregation_ppm <= 1_000_000, "committee_ledger: more are accepted than train"
    assert fixed.strategy in [1, 2, 3], "committee_ledger: strategy is unknown"
    assert fixed.rounds > 0, "committee_ledger: there is no round"
    assert fixed.rounds <= MAX_ROUNDS, "committee_ledger: too many rounds"
    assert fixed.commit_blocks > 0, "committee_ledger: there is no block to commit in"
    assert fixed.deadline_blocks <= MAX_BLOCKS, "committee_ledger: deadline is too late"
    assert fixed.deadline_blocks > fixed.commit_blocks, "committee_ledger: there is no block to decide in"
    # One block after the window, before the one that may abandon.
    assert fixed.deadline_blocks - fixed.commit_blocks > 1, "committee_ledger: there is no block to decide in"
    assert fixed.replies >= fixed.members // 2, "committee_ledger: too few replies decide"
    assert fixed.replies < fixed.members, "committee_ledger: more replies decide than members can give"

    CONFIG = fixed.config
    REGISTRY = fixed.registry
    CLIENTS = fixed.clients
    TRAINERS = fixed.trainers
    MEMBERS = fixed.members
    AGGREGATION_PPM = fixed.aggregation_ppm
    STRATEGY = fixed.strategy
    ROUNDS = fixed.rounds
    COMMIT_BLOCKS = fixed.commit_blocks
    DEADLINE_BLOCKS = fixed.deadline_blocks
    REPLIES_NEEDED = fixed.replies
    BLOCK_BEACON = fixed.block_beacon
    FIRST_MODEL = fixed.model

    self.registry_rest = fixed.registry
    self.model = fixed.model
    self.head = fixed.config

    salt: bytes32 = keccak256(concat(fixed.config, fixed.registry, self._beacon()))
    ballots.__init__(salt)
    log ICommitteeLedger.LedgerDeployed(salt=salt)


@external
def register_clients(words: DynArray[uint256, MAX_BATCH], rest: bytes32):
    self._require_account()
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
    log ICommitteeLedger.ClientsRegistered(first=first, words=words)

    if count == CLIENTS:
        # Other creation code can return this code and leave flags behind: they count for nothing.
        for place: uint256 in range((CLIENTS + FLAGS - 1) // FLAGS, bound=FLAG_WORDS):
            self.committed[place] = 0
        seed: bytes32 = keccak256(concat(CONFIG, self._beacon()))
        committee: DynArray[uint256, MAX_MEMBERS] = self._drawn_committee(seed)
        self.seed = seed
        self.committee_digest = keccak256(abi_encode(committee))
        stage: uint8 = OPEN
        if len(committee) < MEMBERS:
            stage = FINISHED
        self.progress = self._pack(stage, 1)
        log ICommitteeLedger.LedgerOpened(
            config=CONFIG, seed=seed, committee=committee, model=FIRST_MODEL
        )


@external
def commit_updates(
    round: uint64,
    commitments: DynArray[ICommitteeLedger.Commitment, MAX_COMMITMENTS],
    signatures: DynArray[ICommitteeLedger.Signature, MAX_COMMITMENTS],
):
    self._require_account()
    progress: uint256 = self._require_open(round)
    assert self._is_collecting(progress), "committee_ledger: commitments are closed"
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
    # Positions of those passed over, as a bitmap.
    passed: uint256 = 0
    for commitment: ICommitteeLedger.Commitment in commitments:
        assert commitment.client < clients, "committee_ledger: client is unknown"
        registered: uint256 = self.registry[commitment.client]
        assert registered >> 224 == 0 or registered >> 224 >= tag, "committee_ledger: client is banned"
        # Wraps around below `first`, and is then too large as well.
        offset: uint256 = unsafe_sub(commitment.client, first)
        if offset >= FLAGS:
            if position != 0:
                self.committed[place] = flags
            place = commitment.client // FLAGS
            offset = commitment.client % FLAGS
            first = unsafe_sub(commitment.client, offset)
            flags = self._flags(place, tag)
        if flags >> offset & 1 == 0:
            flags |= 1 << offset
            assert ballots._committer(round, commitment, signatures[position]) == registered >> 64 & ADDRESS_MASK, "committee_ledger: commitment is not signed by its client"
            digest = keccak256(
                concat(
                    digest,
                    convert(convert(commitment.client, uint32), bytes4),
                    commitment.commitment,
                )
            )
        else:
            passed |= 1 << position
        position = unsafe_add(position, 1)
    self.committed[place] = flags
    self.commitments = digest
    # From the round's second transaction on this writes what is there, which is nearly free.
    self.progress = progress | COMMITTED
    if passed == 0:
        log ICommitteeLedger.UpdatesCommitted(round=round, commitments=commitments)
    else:
        # Not in a function: its memory would lie below what every batch uses, and be paid by all.
        taken: DynArray[ICommitteeLedger.Commitment, MAX_COMMITMENTS] = []
        position = 0
        for commitment: ICommitteeLedger.Commitment in commitments:
            if passed >> position & 1 == 0:
                taken.append(commitment)
            position = unsafe_add(position, 1)
        assert len(taken) != 0, "committee_ledger: every client has committed already"
        log ICommitteeLedger.UpdatesCommitted(round=round, commitments=taken)


@external
def decide(
    round: uint64,
    committee: DynArray[uint256, MAX_MEMBERS],
    ranking: DynArray[uint256, MAX_TRAINERS],
    base: bytes32,
    outcome: ICommitteeLedger.Outcome,
    incidents: bytes32,
    aggregation: ICommitteeLedger.Certificate,
    aggregation_replies: DynArray[ICommitteeLedger.Signature, MAX_MEMBERS],
    election: ICommitteeLedger.Certificate,
    election_replies: DynArray[ICommitteeLedger.Signature, MAX_MEMBERS],
):
    self._require_account()
    progress: uint256 = self._require_open(round)
    assert keccak256(abi_encode(committee)) == self.committee_digest, "committee_ledger: committee is not the elected one"
    self._require_ranking(progress, committee, ranking)

    first: uint256 = 0
    size: uint256 = 0
    first, size = rankings._accepted(ranking, STRATEGY, AGGREGATION_PPM)
    accepted: uint256 = rankings._places(first, size)
    accepted_digest: bytes32 = keccak256(abi_encode(rankings._clients(ranking, accepted)))
    first, size = rankings._candidates(len(ranking), MEMBERS, STRATEGY, size)
    elected: uint256 = rankings._places(first, size)
    candidates_digest: bytes32 = keccak256(abi_encode(rankings._clients(ranking, elected)))
    result: bytes32 = keccak256(
        abi_encode(
            outcome.model,
            outcome.updates_root,
            outcome.scores_root,
            keccak256(abi_encode(ranking)),
            outcome.reveal,
            outcome.record,
        )
    )
    seed: bytes32 = self.seed
    assert aggregation.set_digest == accepted_digest, "committee_ledger: aggregation set is not the one that the ranking gives"
    first_primary: uint256 = self._require_certificate(
        round, seed, AGGREGATION, committee, base, result, aggregation, aggregation_replies
    )
    assert election.set_digest == candidates_digest, "committee_ledger: candidates are not those that the ranking gives"
    second_primary: uint256 = self._require_certificate(
        round, seed, ELECTION, committee, base, result, election, election_replies
    )

    # The seed comes after the votes: whoever voted could not choose who is drawn.
    next_seed: bytes32 = keccak256(concat(seed, outcome.reveal, self._beacon()))
    next_digest: bytes32 = candidates_digest
    if size != MEMBERS:
        elected = rankings._elected(next_seed, first, size, MEMBERS)
        next_digest = keccak256(abi_encode(rankings._clients(ranking, elected)))

    # Somebody is ranked and so has committed: the digest of commitments is of this round.
    head: bytes32 = keccak256(
        concat(
            self.head,
            convert(round, bytes8),
            seed,
            self.commitments,
            accepted_digest,
            next_digest,
            result,
            keccak256(
                abi_encode(
                    aggregation.voted_view,
                    election.voted_view,
                    aggregation.signers,
                    election.signers,
                    incidents,
                )
            ),
        )
    )
    self.model = outcome.model
    self._next_round(round, next_seed, next_digest, head)
    log ICommitteeLedger.RoundDecided(
        round=round,
        ranking=ranking,
        accepted=accepted,
        next_committee=elected,
        base=base,
        model=outcome.model,
        updates_root=outcome.updates_root,
        scores_root=outcome.scores_root,
        reveal=outcome.reveal,
        record=outcome.record,
        incidents=incidents,
        views=[aggregation.voted_view, election.voted_view],
        primaries=[first_primary, second_primary],
        signers=[aggregation.signers, election.signers],
        next_seed=next_seed,
        head=head,
    )


@external
def abandon_round(round: uint64):
    self._require_account()
    progress: uint256 = self._require_open(round)
    deadline: uint256 = (progress >> 80 & BLOCK_MASK) + convert(DEADLINE_BLOCKS, uint256)
    assert block.number >= deadline, "committee_ledger: deadline is not reached"
    seed: bytes32 = self.seed
    next_seed: bytes32 = keccak256(concat(seed, b"abandoned", self._beacon()))
    committee: DynArray[uint256, MAX_MEMBERS] = self._drawn_committee(next_seed)
    digest: bytes32 = keccak256(abi_encode(committee))
    head: bytes32 = keccak256(
        concat(
            self.head,
            convert(round, bytes8),
            seed,
            b"abandoned",
            self._commitments(progress),
            digest,
        )
    )
    self._next_round(round, next_seed, digest, head)
    if len(committee) < MEMBERS:
        self.progress = (self.progress & ~convert(255, uint256)) | convert(FINISHED, uint256)
    log ICommitteeLedger.RoundAbandoned(
        round=round, next_committee=committee, next_seed=next_seed, head=head
    )


@external
def report_equivocation(
    client: uint256,
    kind: uint8,
    round: uint64,
    phase: uint8,
    voted_view: uint32,
    base: bytes32,
    first: ICommitteeLedger.SignedStatement,
    second: ICommitteeLedger.SignedStatement,
):
    self._require_account()
    progress: uint256 = self.progress
    assert self._stage(progress) != REGISTERING, "committee_ledger: no round has opened"
    assert client < CLIENTS, "committee_ledger: client is unknown"
    registered: uint256 = self.registry[client]
    assert registered >> 224 == 0, "committee_ledger: client is banned"
    assert kind in [REQUESTS, REPLIES, SCORES], "committee_ledger: kind of statement is unknown"
    assert first.set_digest != second.set_digest or first.result != second.result, "committee_ledger: statements are the same"
    if kind == SCORES:
        assert first.set_digest == second.set_digest, "committee_ledger: score vectors are for different clients"
    for statement: ICommitteeLedger.SignedStatement in [first, second]:
        digest: bytes32 = empty(bytes32)
        if kind == SCORES:
            digest = ballots._scores_digest(
                round, client, base, statement.set_digest, statement.result
            )
        else:
            digest = ballots._vote_digest(
                kind == REQUESTS,
                round,
                phase,
                voted_view,
                base,
                statement.set_digest,
                statement.result,
            )
        signer: uint256 = ballots._signer(digest, statement.r, statement.vs)
        assert signer == registered >> 64, "committee_ledger: statement is not signed by the client"

    current: uint64 = self._round(progress)
    self.registry[client] = registered | convert(current, uint256) << 224
    head: bytes32 = keccak256(
        concat(
            self.head,
            convert(current, bytes8),
            b"banned",
            convert(convert(client, uint32), bytes4),
        )
    )
    self.head = head
    log ICommitteeLedger.ClientBanned(round=current, client=client, head=head)


@external
@view
def deployment() -> ICommitteeLedger.Deployment:
    return ICommitteeLedger.Deployment(
        config=CONFIG,
        registry=REGISTRY,
        clients=CLIENTS,
        trainers=TRAINERS,
        members=MEMBERS,
        aggregation_ppm=AGGREGATION_PPM,
        strategy=STRATEGY,
        rounds=ROUNDS,
        commit_blocks=COMMIT_BLOCKS,
        deadline_blocks=DEADLINE_BLOCKS,
        replies=REPLIES_NEEDED,
        block_beacon=BLOCK_BEACON,
        model=FIRST_MODEL,
    )


@external
@view
def state() -> ICommitteeLedger.State:
    progress: uint256 = self.progress
    return ICommitteeLedger.State(
        stage=self._stage(progress),
        round=self._round(progress),
        opened_block=convert(progress >> 80 & BLOCK_MASK, uint64),
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
    assert index < self.registered, "committee_ledger: client is unknown"
    return self.registry[index]


@external
@view
def has_committed(index: uint256) -> bool:
    assert index < CLIENTS, "committee_ledger: client is unknown"
    # After the last round its flags are still there, and nothing will overwrite them.
    progress: uint256 = self.progress
    if self._stage(progress) != OPEN:
        return False
    return self._flags(index // FLAGS, convert(self._round(progress), uint256)) & 1 << (index % FLAGS) != 0


@external
@view
def eip712Domain() -> (bytes1, String[11], String[1], uint256, address, bytes32, DynArray[uint256, 1]):
    # 0x1f: name, version, chainId, verifyingContract and salt; no extensions.
    return 0x1f, ballots.NAME, ballots.VERSION, chain.id, self, ballots.SALT, []


@internal
@view
def _require_account():
    # Who verifies a round reads its votes in the call data of the transaction itself.
    assert msg.sender == tx.origin, "committee_ledger: transaction comes from a contract"
    # An account that delegates (EIP-7702) can call from its own code, with other call data.
    assert msg.sender.codesize == 0, "committee_ledger: transaction comes from a delegated account"


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
def _is_collecting(progress: uint256) -> bool:
    """
    @return Whether commitments of the open round are taken in this block.
    """
    return block.number <= (progress >> 80 & BLOCK_MASK) + convert(COMMIT_BLOCKS, uint256)


@internal
@view
def _require_ranking(
    progress: uint256,
    committee: DynArray[uint256, MAX_MEMBERS],
    ranking: DynArray[uint256, MAX_TRAINERS],
):
    assert len(ranking) <= TRAINERS, "committee_ledger: more clients are ranked than train"
    assert len(ranking) >= MEMBERS, "committee_ledger: fewer clients are ranked than a committee needs"
    if len(ranking) < TRAINERS:
        # Nobody is late while there is time.
        assert not self._is_collecting(progress), "committee_ledger: fewer clients are ranked than train while commitments are open"
    tag: uint256 = convert(self._round(progress), uint256)
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
    base: bytes32,
    result: bytes32,
    certificate: ICommitteeLedger.Certificate,
    replies: DynArray[ICommitteeLedger.Signature, MAX_MEMBERS],
) -> uint256:
    """
    @return The primary, if its request and enough other members' replies are signed.
    """
    place: uint256 = ballots._primary_place(seed, phase, certificate.voted_view, MEMBERS)
    digest: bytes32 = ballots._vote_digest(
        True, round, phase, certificate.voted_view, base, certificate.set_digest, result
    )
    primary: uint256 = committee[place]
    tag: uint256 = convert(round, uint256)
    registered: uint256 = self.registry[primary]
    assert registered >> 224 == 0 or registered >> 224 >= tag, "committee_ledger: member is banned"
    signer: uint256 = ballots._signer(digest, certificate.r, certificate.vs)
    assert signer == registered >> 64 & ADDRESS_MASK, "committee_ledger: request is not signed by the primary of the view"

    signers: uint256 = certificate.signers
    assert signers >> MEMBERS == 0, "committee_ledger: signers are not places of the committee"
    assert signers >> place & 1 == 0, "committee_ledger: primary replies to itself"
    assert len(replies) >= REPLIES_NEEDED, "committee_ledger: quorum is not reached"

    digest = ballots._vote_digest(
        False, round, phase, certificate.voted_view, base, certificate.set_digest, result
    )
    position: uint256 = 0
    for member: uint256 in committee:
        if signers == 0:
            break
        if signers & 1 != 0:
            assert position < len(replies), "committee_ledger: signatures do not match the signers"
            registered = self.registry[member]
            assert registered >> 224 == 0 or registered >> 224 >= tag, "committee_ledger: member is banned"
            reply: ICommitteeLedger.Signature = replies[position]
            assert ballots._signer(digest, reply.r, reply.vs) == registered >> 64 & ADDRESS_MASK, "committee_ledger: reply is not signed by its member"
            position = unsafe_add(position, 1)
        signers >>= 1
    assert position == len(replies), "committee_ledger: signatures do not match the signers"
    return primary


@internal
@view
def _drawn_committee(seed: bytes32) -> DynArray[uint256, MAX_MEMBERS]:
    """
    @return The first committee, or the one after an abandoned round; fewer than C clients only if
            MAX_DRAWS draws do not find as many that were never banned.
    """
    drawn: DynArray[uint256, MAX_MEMBERS] = []
    # Flags of who is drawn: looking through the list would cost a large committee its gas limit.
    taken: uint256[FLAG_WORDS] = empty(uint256[FLAG_WORDS])
    for draw: uint256 in range(MAX_DRAWS):
        if len(drawn) == MEMBERS:
            break
        word: bytes32 = keccak256(concat(seed, convert(convert(draw, uint32), bytes4)))
        client: uint256 = convert(word, uint256) % CLIENTS
        flag: uint256 = 1 << (client % FLAGS)
        if taken[client // FLAGS] & flag == 0 and self.registry[client] >> 224 == 0:
            taken[client // FLAGS] |= flag
            drawn.append(client)
    return drawn


@internal
def _next_round(round: uint64, seed: bytes32, committee: bytes32, head: bytes32):
    self.seed = seed
    self.committee_digest = committee
    self.head = head
    if round == ROUNDS:
        self.progress = self._pack(FINISHED, round)
    else:
        self.progress = self._pack(OPEN, round + 1)


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
@view
def _pack(stage: uint8, round: uint64) -> uint256:
    """
    @return The progress of a round that opens in this block.
    """
    return convert(stage, uint256) | convert(round, uint256) << 8 | block.number << 80


@internal
@pure
def _stage(progress: uint256) -> uint8:
    return convert(progress & 255, uint8)


@internal
@pure
def _round(progress: uint256) -> uint64:
    return convert(progress >> 8 & SAMPLES_MASK, uint64)
