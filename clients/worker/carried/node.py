"""What answers a carrier beside an owner's worker: it moves objects, and knows no key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.worker.carried.exchange import (
    MAX_EXCHANGE_BYTES,
    MAX_OBJECTS,
    Collection,
    NodeRefusal,
    decode_delivery,
    encode_answer,
)
from ledger.protocol.errors import CmflError
from ledger.storage.carried import CarriedObjects
from ledger.storage.object_paths import mail_round

if TYPE_CHECKING:
    from pathlib import Path

    from clients.worker.carried.exchange import Delivery

_ROOM = MAX_EXCHANGE_BYTES - (1 << 24)


def answer_carrier(message: bytes, folder: Path) -> bytes:
    """Return the answer to a delivery; what goes wrong is said in it.

    Args:
        message: untrusted bytes.
        folder: of the owner's carried objects, which the worker uses as blobs and mailbox.
    """
    try:
        answer: Collection | NodeRefusal = _exchanged(
            decode_delivery(message), CarriedObjects(folder)
        )
    except (CmflError, OSError) as error:
        answer = NodeRefusal(str(error))
    return encode_answer(answer)


def _exchanged(delivery: Delivery, objects: CarriedObjects) -> Collection:
    objects.take_over(delivery.taken)
    newest = max((mail_round(path) or 0 for path in delivery.objects), default=0)
    if newest and 0 < objects.newest_round() < newest:
        objects.forget(newest)
    for path, data in delivery.objects.items():
        objects.bring(path, data)
    sent: dict[str, bytes] = {}
    room = _ROOM
    for path in objects.outgoing()[:MAX_OBJECTS]:
        try:
            sent[path] = objects.fetch(path, room)
        except OSError:
            continue  # damaged, just moved, or larger than what is left of the message
        room -= len(sent[path])
    return Collection(sent, tuple(objects.wanted()[:MAX_OBJECTS]))
