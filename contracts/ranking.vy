# pragma version 0.4.3
"""
@title What follows from a ranking: order, selection, election
@notice A ranking is a list of words, best first: float64 bits of the distance << 32 | client.
        Twin of ledger/protocol/rules/selection.py and ledger/protocol/ranking.py.
@dev For non-negative numbers the bits of a float64 sort as the number does, so a strictly
     increasing list of words carries order and tie rule at once.
"""

MAX_TRAINERS: constant(uint256) = 256
MILLION: constant(uint256) = 1_000_000

STRATEGY_FARTHEST: constant(uint8) = 2
STRATEGY_BELOW_TWO: constant(uint8) = 3

# Bit pattern of the float64 2.0, 0x4000000000000000.
TWO_BITS: constant(uint256) = 2**62

CLIENT_MASK: constant(uint256) = 2**32 - 1


@internal
@pure
def _accepted(
    ranking: DynArray[uint256, MAX_TRAINERS],
    strategy: uint8,
    aggregation_ppm: uint256,
) -> (uint256, uint256):
    """
    @return Place of the first client of S_a in the ranking, and their number.
    """
    size: uint256 = max(1, (2 * aggregation_ppm * len(ranking) + MILLION) // (2 * MILLION))
    if strategy == STRATEGY_FARTHEST:
        return len(ranking) - size, size
    if strategy == STRATEGY_BELOW_TWO:
        below: uint256 = 0
        for word: uint256 in ranking:
            if word >> 32 >= TWO_BITS:
                break
            below += 1
        if below != 0:
            return 0, below
    return 0, size


@internal
@pure
def _candidates(
    ranked: uint256, members: uint256, strategy: uint8, accepted_size: uint256
) -> (uint256, uint256):
    """
    @return Place of the first candidate for the next committee in the ranking, and their number.
    """
    if strategy != STRATEGY_BELOW_TWO:
        return (ranked - members) // 2, members
    # S_a begins the ranking; where it is too small, its neighbours stand too.
    return 0, max(accepted_size, members)


@internal
@pure
def _elected(seed: bytes32, first: uint256, size: uint256, members: uint256) -> uint256:
    """
    @return Places of the next committee in the ranking, bit i for place i: so many of the
            candidates, each set of them with the same chance.
    """
    elected: uint256 = 0
    wanted: uint256 = members
    for place: uint256 in range(size, bound=MAX_TRAINERS):
        if wanted == 0:
            break
        left: uint256 = size - place
        if wanted != left:
            word: bytes32 = keccak256(
                concat(seed, b"elected", convert(convert(place, uint32), bytes4))
            )
            if convert(word, uint256) % left >= wanted:
                continue
        elected |= 1 << (first + place)
        wanted -= 1
    return elected


@internal
@pure
def _places(first: uint256, size: uint256) -> uint256:
    """
    @return Neighbouring places, bit i for place i.
    """
    return ~(max_value(uint256) << size) << first


@internal
@pure
def _clients(ranking: DynArray[uint256, MAX_TRAINERS], places: uint256) -> DynArray[uint256, MAX_TRAINERS]:
    """
    @return The clients at these places, in ranking order. As numbers of 256 bits they have the
            same ABI encoding as the protocol's uint32[], and so the same digest.
    """
    clients: DynArray[uint256, MAX_TRAINERS] = []
    rest: uint256 = places
    for word: uint256 in ranking:
        if rest == 0:
            break
        if rest & 1 != 0:
            clients.append(word & CLIENT_MASK)
        rest >>= 1
    return clients
