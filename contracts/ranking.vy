# pragma version 0.4.3
"""
@title What follows from a ranking: order, selection, election
@notice A ranking is a list of words, best first: float64 bits of the distance << 32 | client.
        Twin of ledger/protocol/rules/selection/ and election.py.
@dev For non-negative numbers the bits of a float64 sort as the number does, so a strictly
     increasing list of words carries order and tie rule at once.
"""

MAX_TRAINERS: constant(uint256) = 256
MILLION: constant(uint256) = 1_000_000

STRATEGY_FARTHEST: constant(uint8) = 2
STRATEGY_WITHIN_THRESHOLD: constant(uint8) = 3

CLIENT_MASK: constant(uint256) = 2**32 - 1


@internal
@pure
def _accepted(
    ranking: DynArray[uint256, MAX_TRAINERS],
    strategy: uint8,
    aggregation_ppm: uint256,
    threshold_bits: uint256,
) -> (uint256, uint256):
    """
    @return Place of the first client of S_a in the ranking, and their number.
    """
    size: uint256 = max(1, (2 * aggregation_ppm * len(ranking) + MILLION) // (2 * MILLION))
    if strategy == STRATEGY_FARTHEST:
        return len(ranking) - size, size
    if strategy == STRATEGY_WITHIN_THRESHOLD:
        within: uint256 = 0
        for word: uint256 in ranking:
            if word >> 32 > threshold_bits:
                break
            within += 1
        if within != 0:
            return 0, within
    return 0, size


@internal
@pure
def _clients(
    ranking: DynArray[uint256, MAX_TRAINERS], first: uint256, size: uint256
) -> DynArray[uint256, MAX_TRAINERS]:
    """
    @return The clients at these places, in ranking order. As numbers of 256 bits they have the
            same ABI encoding as the protocol's uint32[], and so the same digest.
    """
    clients: DynArray[uint256, MAX_TRAINERS] = []
    for place: uint256 in range(first, first + size, bound=MAX_TRAINERS):
        clients.append(ranking[place] & CLIENT_MASK)
    return clients
