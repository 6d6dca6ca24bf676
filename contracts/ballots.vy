# pragma version 0.4.3
"""
@title Signatures and primaries of the committee consensus protocol (Algorithm 2)
@notice EIP-712 digests of everything that clients and members sign, and their recovery.
        Twin of ledger/protocol/signing.py and consensus.py.
@dev Signatures come compact (EIP-2098): r, and s with the parity of R in its top bit. So v can
     only be 27 or 28, and s is checked to lie in the lower half of the group order.
"""

import ICommitteeLedger

NAME: constant(String[11]) = "CMFL Ledger"
VERSION: constant(String[1]) = "3"

DOMAIN_TYPE: constant(bytes32) = keccak256(
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract,bytes32 salt)"
)
COMMITMENT_TYPE: constant(bytes32) = keccak256(
    "Commitment(uint64 round,uint32 client,bytes32 commitment)"
)
SCORES_TYPE: constant(bytes32) = keccak256(
    "Scores(uint64 round,uint32 member,bytes32 base,bytes32 clients,bytes32 digest)"
)
REQUEST_TYPE: constant(bytes32) = keccak256(
    "Request(uint64 round,uint8 phase,uint32 view,bytes32 base,bytes32 set,bytes32 result)"
)
REPLY_TYPE: constant(bytes32) = keccak256(
    "Reply(uint64 round,uint8 phase,uint32 view,bytes32 base,bytes32 set,bytes32 result)"
)

# 0x7FFFFFFF...681B20A0: half the order of secp256k1's group
HALF_GROUP_ORDER: constant(uint256) = (
    57896044618658097711785492504343953926418782139537452191302581570759080747168
)

LOW_BITS: constant(uint256) = 2**255 - 1

DOMAIN: immutable(bytes32)
SALT: immutable(bytes32)


@deploy
def __init__(salt: bytes32):
    DOMAIN = keccak256(
        abi_encode(DOMAIN_TYPE, keccak256(NAME), keccak256(VERSION), chain.id, self, salt)
    )
    SALT = salt


@internal
@view
def _committer(
    round: uint64,
    commitment: ICommitteeLedger.Commitment,
    signature: ICommitteeLedger.Signature,
) -> uint256:
    """
    @return Address of who signed this commitment, zero if nobody can have.
    """
    # As in _typed and _signer, without their calls: this runs for every client of every round.
    s: uint256 = convert(signature.vs, uint256) & LOW_BITS
    assert s <= HALF_GROUP_ORDER, "committee_ledger: signature is not canonical"
    return convert(
        ecrecover(
            keccak256(
                concat(
                    0x1901, DOMAIN, keccak256(abi_encode(COMMITMENT_TYPE, round, commitment))
                )
            ),
            unsafe_add(convert(signature.vs, uint256) >> 255, 27),
            convert(signature.r, uint256),
            s,
        ),
        uint256,
    )


@internal
@view
def _vote_digest(
    is_request: bool,
    round: uint64,
    phase: uint8,
    voted_view: uint32,
    base: bytes32,
    set_digest: bytes32,
    result: bytes32,
) -> bytes32:
    type_hash: bytes32 = REPLY_TYPE
    if is_request:
        type_hash = REQUEST_TYPE
    return self._typed(
        keccak256(abi_encode(type_hash, round, phase, voted_view, base, set_digest, result))
    )


@internal
@view
def _scores_digest(
    round: uint64, member: uint256, base: bytes32, clients: bytes32, digest: bytes32
) -> bytes32:
    return self._typed(keccak256(abi_encode(SCORES_TYPE, round, member, base, clients, digest)))


@internal
@view
def _typed(struct_hash: bytes32) -> bytes32:
    return keccak256(concat(0x1901, DOMAIN, struct_hash))


@internal
@pure
def _signer(digest: bytes32, r: bytes32, vs: bytes32) -> uint256:
    """
    @return Address of who signed this digest, zero if nobody can have.
    """
    s: uint256 = convert(vs, uint256) & LOW_BITS
    assert s <= HALF_GROUP_ORDER, "committee_ledger: signature is not canonical"
    return convert(
        ecrecover(
            digest,
            unsafe_add(convert(vs, uint256) >> 255, 27),
            convert(r, uint256),
            s,
        ),
        uint256,
    )


@internal
@pure
def _primary_place(seed: bytes32, phase: uint8, voted_view: uint32, members: uint256) -> uint256:
    return convert(
        keccak256(concat(seed, convert(phase, bytes1), convert(voted_view, bytes4))), uint256
    ) % members
