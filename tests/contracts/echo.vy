# pragma version 0.4.3
# @title The ledger's functions, each of which returns its arguments as the compiler reads them

import ICommitteeLedger


@external
def register_clients(words: DynArray[uint256, 256], rest: bytes32) -> Bytes[8352]:
    return abi_encode(words, rest)


@external
def commit_updates(
    round: uint64,
    commitments: DynArray[ICommitteeLedger.Commitment, 256],
    signatures: DynArray[ICommitteeLedger.Signature, 256],
) -> Bytes[33000]:
    return abi_encode(round, commitments, signatures)


@external
def decide(
    round: uint64,
    committee: DynArray[uint256, 160],
    ranking: DynArray[uint256, 256],
    base: bytes32,
    outcome: ICommitteeLedger.Outcome,
    incidents: bytes32,
    aggregation: ICommitteeLedger.Certificate,
    aggregation_replies: DynArray[ICommitteeLedger.Signature, 160],
    election: ICommitteeLedger.Certificate,
    election_replies: DynArray[ICommitteeLedger.Signature, 160],
) -> Bytes[36000]:
    return abi_encode(
        round,
        committee,
        ranking,
        base,
        outcome,
        incidents,
        aggregation,
        aggregation_replies,
        election,
        election_replies,
    )


@external
def abandon_round(round: uint64) -> Bytes[32]:
    return abi_encode(round)


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
) -> Bytes[448]:
    return abi_encode(client, kind, round, phase, voted_view, base, first, second)
