"""Messages between a carrier and the owners' nodes: objects by their paths, canonical and bounded.

An object's path ends with its sha256, and mail is signed: what a carrier changes is no object any
more. It can keep objects back, and bring them late or in another order, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledger.protocol import canonical
from ledger.protocol.errors import EncodingError
from ledger.storage.object_paths import is_blob, mail_round

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
MAX_EXCHANGE_BYTES = 1 << 30
"""Of a message; what does not fit waits for the next one."""

MAX_OBJECTS = 4_096
"""Objects and paths of a message."""

MAX_SENTENCE = 500


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a carrier brings to a node.

    Attributes:
        objects: mail, and blobs that the node has asked for, by path.
        taken: paths of what the carrier has got from the node.
    """

    objects: Mapping[str, bytes] = field(default_factory=dict)
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Collection:
    """What a carrier gets from a node.

    Attributes:
        objects: mail and blobs for all, by path.
        wanted: paths of blobs that are looked for.
    """

    objects: Mapping[str, bytes] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """The answer of a node that cannot take part.

    Attributes:
        sentence: the reason.
    """

    sentence: str


def encode_delivery(delivery: Delivery) -> bytes:
    """Return the bytes of a delivery."""
    return _encode("delivery", delivery.objects, delivery.taken)


def decode_delivery(data: bytes) -> Delivery:
    """Return the delivery in untrusted bytes (EncodingError: they are none)."""
    return Delivery(*_parts(_decode(data), "delivery"))


def encode_answer(answer: Collection | NodeRefusal) -> bytes:
    """Return the bytes of a node's answer."""
    if isinstance(answer, NodeRefusal):
        return canonical.encode(
            {"version": VERSION, "kind": "refusal", "sentence": answer.sentence[:MAX_SENTENCE]}
        )
    return _encode("collection", answer.objects, answer.wanted)


def decode_answer(data: bytes) -> Collection | NodeRefusal:
    """Return the answer in untrusted bytes (EncodingError: they are none)."""
    fields = _decode(data)
    if fields.get("kind") != "refusal":
        return Collection(*_parts(fields, "collection"))
    if fields.keys() != {"kind", "sentence"} or type(fields["sentence"]) is not str:
        raise EncodingError("a refusal has a sentence")
    return NodeRefusal(" ".join(fields["sentence"].split())[:MAX_SENTENCE])


def _encode(kind: str, objects: Mapping[str, bytes], named: tuple[str, ...]) -> bytes:
    parts = {"paths": list(objects), "objects": list(objects.values()), "named": list(named)}
    return canonical.encode({"version": VERSION, "kind": kind, **parts})


def _decode(data: bytes) -> dict[str, Any]:
    """Return the fields of a message but its version (EncodingError: it is none)."""
    fields = canonical.decode(data, MAX_EXCHANGE_BYTES, containers=4, longest=MAX_OBJECTS)
    if fields.pop("version", None) != VERSION:
        raise EncodingError(f"a message has version {VERSION}")
    return fields


def _parts(fields: dict[str, Any], kind: str) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the objects of a message by path, and the paths that it names.

    Raises:
        EncodingError: it is no message of this kind.
    """
    expected = {"kind": str, "paths": list, "objects": list, "named": list}
    if {name: type(value) for name, value in fields.items()} != expected or fields["kind"] != kind:
        raise EncodingError(f"a {kind} has {', '.join(sorted(expected))}")
    paths, objects, named = fields["paths"], fields["objects"], fields["named"]
    if len(paths) != len(objects) or any(type(each) is not bytes for each in objects):
        raise EncodingError("each path of a message has an object")
    for path in (*paths, *named):
        if type(path) is not str or not (is_blob(path) or mail_round(path) is not None):
            raise EncodingError(f"{path!r:.120} is no path of a blob or of mail")
    return dict(zip(paths, objects, strict=True)), tuple(named)
