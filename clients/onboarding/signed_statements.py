"""Statements that a client's key signs, and the power that each signature gives to others."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.protocol import registration, signing

TRANSACTION = "transaction"
_DOMAIN = "EIP712Domain"

_LETS = {
    "Commitment": (
        "record on the chain, once a round, that the client commits to an update whose digest "
        "is still secret"
    ),
    "Scores": (
        "count the member's distances in a round; two different ones for one base and one set of "
        "clients prove equivocation and ban it"
    ),
    "Request": (
        "take the member for the author of a proposal; two different ones for one round, phase, "
        "view and base prove equivocation and ban it"
    ),
    "Reply": (
        "count the member's vote for a set and a result; two different ones for one round, phase, "
        "view and base prove equivocation and ban it"
    ),
    "Environment": (
        "hold the client to this training environment when they repeat its update of the round; "
        "no contract reads it"
    ),
    "Replay": (
        "hold the signer to this verdict on another's update, and call it false if they repeat the "
        "update and have another verdict or other losses; no contract reads it"
    ),
    "Upload": (
        "put exactly these bytes at one URL of one store, at the cost of the client's quota of a "
        "round; no contract reads it"
    ),
    "Registration": (
        "register the address with this many samples in a run of this configuration; the deployer "
        "decides whether to"
    ),
    "DataSalt": (
        "guess small data behind the digest that the client has registered: it is made and used on "
        "this machine and never sent"
    ),
    "Challenge": "believe that the signer has the key; nothing else, and it is never kept",
}


@dataclass(frozen=True, slots=True)
class SignedStatementKind:
    """One kind of statement.

    Attributes:
        name: of the EIP-712 type, or `TRANSACTION`.
        fields: of the type, as EIP-712 writes them.
        bound_to: scope outside which it is worthless.
        lets: power that it gives to others.
    """

    name: str
    fields: str
    bound_to: str
    lets: str


def signed_statement_kinds() -> list[SignedStatementKind]:
    """Return all kinds of statements, in the order of a client's life."""
    return [
        *(
            SignedStatementKind(name, fields, "name and version of this software", _LETS[name])
            for name, fields in registration.TYPES.items()
        ),
        *(
            SignedStatementKind(name, fields, "one run: chain, contract and salt", _LETS[name])
            for name, fields in signing.TYPES.items()
            if name != _DOMAIN
        ),
        SignedStatementKind(
            TRANSACTION,
            "to, value 0, gas, fees, nonce, call data of the ledger",
            "one chain and one nonce",
            "carry commitments, a decision, an abandonment or a report into a block, at the "
            "account's own cost in gas",
        ),
    ]
