"""The JSON that proofs and bundles share: run, path of heads and participants of a round."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, Strict

from ledger.audit.proofs.head_path import HeadPath
from ledger.audit.proofs.json_documents import (
    U32,
    U64,
    JsonClient,
    JsonContract,
    JsonDigest,
    JsonList,
    StrictDocument,
    to_hex,
)
from ledger.audit.proofs.proof import RecordedBan, RoundBasis
from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import AbandonmentLink, BanLink, DecisionLink
from ledger.protocol.parameters import MAX_CLIENTS, MAX_MEMBERS
from ledger.protocol.types import NO_DIGEST, Beacon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledger.protocol.fold import Link
    from ledger.protocol.ledger_state import Deployment

MAX_LINKS = 1_000_000


class _DecisionLinkDocument(StrictDocument):
    kind: Literal["decided"]
    round: U64
    seed: JsonDigest
    commitments: JsonDigest
    accepted: JsonDigest
    committee: JsonDigest
    result: JsonDigest
    votes: JsonDigest


class _AbandonmentLinkDocument(StrictDocument):
    kind: Literal["abandoned"]
    round: U64
    seed: JsonDigest
    commitments: JsonDigest
    committee: JsonDigest


class _BanLinkDocument(StrictDocument):
    kind: Literal["banned"]
    round: U64
    client: JsonClient


_LinkDocument: TypeAlias = Annotated[
    _DecisionLinkDocument | _AbandonmentLinkDocument | _BanLinkDocument,
    Field(discriminator="kind"),
]
_LINKS: dict[str, Callable[..., Link]] = {
    "decided": DecisionLink,
    "abandoned": AbandonmentLink,
    "banned": BanLink,
}


class PathDocument(StrictDocument):
    """A path of heads."""

    start: JsonDigest
    links: Annotated[JsonList[_LinkDocument], Field(max_length=MAX_LINKS)]

    def path(self) -> HeadPath:
        """Return the path."""
        return HeadPath(self.start, tuple(map(_link_of, self.links)))


class BasisDocument(StrictDocument):
    """The basis of a round; the configuration is a field of each kind of document."""

    chain_id: U64
    genesis_hash: JsonDigest
    address: JsonContract
    deployed_after: JsonDigest
    round: U32
    seed: JsonDigest
    committee: Annotated[JsonList[JsonClient], Field(max_length=MAX_MEMBERS)]
    bans: Annotated[
        JsonList[Annotated[tuple[U32, JsonClient], Strict(False)]],
        Field(max_length=MAX_CLIENTS),
    ]
    path: PathDocument

    def basis_fields(self, configuration: bytes) -> dict[str, Any]:
        """Return the fields of a `RoundBasis`.

        Args:
            configuration: the run document's bytes.
        """
        return {
            "chain_id": self.chain_id,
            "contract": self.address,
            "deployment_parent_hash": self.deployed_after,
            "genesis_hash": self.genesis_hash,
            "round": self.round,
            "configuration": configuration,
            "path": self.path.path(),
            "seed": self.seed,
            "committee": self.committee,
            "bans": tuple(RecordedBan(*ban) for ban in self.bans),
        }


def path_dict(path: HeadPath) -> dict[str, Any]:
    """Return a path of heads as plain data."""
    return {"start": to_hex(path.start), "links": [_link_dict(link) for link in path.links]}


def require_possible_basis(basis: RoundBasis) -> None:
    """Refuse a round that no run with its configuration can have.

    Raises:
        EncodingError: names the value and the rule.
    """
    sizes = basis.deployment
    if not 1 <= basis.round <= sizes.rounds:
        raise EncodingError(f"round {basis.round} is none of the run's {sizes.rounds}")
    if sizes.beacon is Beacon.NONE and basis.deployment_parent_hash != NO_DIGEST:
        raise EncodingError("deployed_after is not zero, though the run has beacon = none")
    require_clients("committee", basis.committee, sizes)
    if len(basis.committee) != sizes.members:
        raise EncodingError(f"committee of {len(basis.committee)} is not of {sizes.members}")
    require_clients("bans", [ban.client for ban in basis.bans], sizes)
    for ban in basis.bans:
        if not 1 <= ban.round < basis.round:
            raise EncodingError(f"a ban in round {ban.round} is not before round {basis.round}")


def require_clients(name: str, clients: Sequence[int], sizes: Deployment) -> None:
    """Refuse clients that the run does not have, or that come twice.

    Raises:
        EncodingError: names the client.
    """
    for client in clients:
        if client >= sizes.clients:
            raise EncodingError(f"{name}: client {client} is none of the run's {sizes.clients}")
    if len(set(clients)) != len(clients):
        raise EncodingError(f"{name}: a client comes twice")


def _link_of(document: _LinkDocument) -> Link:
    values = dict(document)
    return _LINKS[values.pop("kind")](**values)


def _link_dict(link: Link) -> dict[str, Any]:
    kind = next(name for name, build in _LINKS.items() if build is type(link))
    values = {field.name: getattr(link, field.name) for field in fields(link)}
    shown = {name: to_hex(v) if isinstance(v, bytes) else v for name, v in values.items()}
    return {"kind": kind, **shown}
