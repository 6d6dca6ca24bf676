"""A path of heads as plain data, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.audit.proofs import fields
from ledger.audit.proofs.fields import hexed
from ledger.audit.proofs.head_path import HeadPath
from ledger.protocol.documents.fields import unsigned
from ledger.protocol.errors import EncodingError
from ledger.protocol.fold import AbandonmentLink, BanLink, DecisionLink

if TYPE_CHECKING:
    from ledger.protocol.fold import Link

MAX_LINKS = 1_000_000
_LINKS: dict[str, dict[str, type]] = {
    "decided": dict.fromkeys(
        ("seed", "commitments", "accepted", "committee", "result", "votes"), str
    ),
    "abandoned": dict.fromkeys(("seed", "commitments", "committee"), str),
    "banned": {"client": int},
}


def path_dict(path: HeadPath) -> dict[str, Any]:
    """Return a path of heads as plain data.

    Args:
        path: what is shown.
    """
    return {"start": hexed(path.start), "links": [_link(link) for link in path.links]}


def path_of(value: object) -> HeadPath:
    """Return the path of heads behind plain data.

    Args:
        value: as `path_dict` gives it.

    Raises:
        EncodingError: it is none.
    """
    found = fields.fields_of("path", value, {"start": str, "links": list})
    start = fields.digest("start", found["start"])
    return HeadPath(start, fields.listed("links", found["links"], _link_of, MAX_LINKS))


def _link(link: Link) -> dict[str, Any]:
    if isinstance(link, BanLink):
        return {"kind": "banned", "round": link.round, "client": link.client}
    kind = "decided" if isinstance(link, DecisionLink) else "abandoned"
    digests = {name: hexed(getattr(link, name)) for name in _LINKS[kind]}
    return {"kind": kind, "round": link.round} | digests


def _link_of(name: str, value: object) -> Link:
    kind = value.get("kind") if type(value) is dict else None
    if type(kind) is not str or kind not in _LINKS:
        raise EncodingError(f"{name}: {value!r:.80} is no link of heads")
    found = fields.fields_of(name, value, {"kind": str, "round": int} | _LINKS[kind])
    number = unsigned("round", found["round"], 64)
    if kind == "banned":
        return BanLink(number, fields.client("client", found["client"]))
    digests = {one: fields.digest(one, found[one]) for one in _LINKS[kind]}
    build = DecisionLink if kind == "decided" else AbandonmentLink
    return build(round=number, **digests)
