"""The carrier: it brings each node the mail of the round and the blobs that it asks for.

It holds no key and decides nothing. Each exchange asks all nodes once; what they put is brought to
all in the next one.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clients.worker.carried.exchange import (
    MAX_EXCHANGE_BYTES,
    MAX_OBJECTS,
    Delivery,
    NodeRefusal,
    decode_answer,
    encode_delivery,
)
from ledger.protocol.errors import EncodingError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.payload import Payload
from ledger.storage.mailbox import MAIL_FOLDER
from ledger.storage.object_paths import mail_round

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clients.runs.flower.nodes import Nodes
    from ledger.chain.contract.committee_ledger import LedgerSnapshot
    from ledger.protocol.types import Digest
    from ledger.storage.folder import FolderObjects

_log = logging.getLogger(__name__)

_ROOM = MAX_EXCHANGE_BYTES - (1 << 24)
_POLL_SECONDS = 0.2
LAST_EXCHANGES = 3
MAIL_ROUNDS = 2
"""The open round and those before it whose mail is brought."""


@dataclass(slots=True)
class _NodeRecord:
    """What the carrier has exchanged with one node.

    Attributes:
        brought: paths of mail that it has.
        wanted: paths of blobs that it asks for.
        taken: paths of what it has put and need not put again.
    """

    brought: set[str] = field(default_factory=set)
    wanted: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


class Carrier:
    """Carries objects between the nodes of the owners of one run.

    Args:
        nodes: of the owners.
        objects: where everything is kept; an auditor reads it.
        seconds: how long one exchange waits for answers.
    """

    def __init__(self, nodes: Nodes, objects: FolderObjects, seconds: float) -> None:
        self._nodes = nodes
        self._objects = objects
        self._seconds = seconds
        self._records: dict[int, _NodeRecord] = {}
        self._mail = self._stored_mail()

    def exchange(self, round_number: int) -> bool:
        """Ask every connected node once; return whether anything was brought or put.

        Args:
            round_number: that is open.

        Raises:
            TrainingError: Flower itself fails.
        """
        self._records = {
            node: self._records.get(node, _NodeRecord()) for node in self._nodes.online()
        }
        self._mail = [path for path in self._mail if _is_current(path, round_number)]
        deliveries = {node: self.delivery(node) for node in self._records}
        names = {
            self._nodes.send(node, encode_delivery(delivery)): node
            for node, delivery in deliveries.items()
        }
        begun, has_news = time.monotonic(), False
        while names:
            for name, answer in self._nodes.answers(tuple(names)).items():
                node = names.pop(name)
                if not isinstance(answer, bytes):
                    _log.warning("node %d: %s", node, answer)
                    continue
                # Of a message that was not answered, it may have nothing.
                self._records[node].brought |= deliveries[node].objects.keys()
                has_news |= bool(deliveries[node].objects) | self._collect(node, answer)
            online = set(self._nodes.online())
            names = {name: node for name, node in names.items() if node in online}
            if not names or time.monotonic() - begun > self._seconds:
                break
            time.sleep(_POLL_SECONDS)
        return has_news

    def delivery(self, node: int) -> Delivery:
        """Return what is brought to a node now."""
        record, objects, room = self._records[node], dict[str, bytes](), _ROOM
        mail = [path for path in self._mail if path not in record.brought]
        for path in (*mail, *record.wanted)[:MAX_OBJECTS]:
            try:
                objects[path] = self._objects.get(path, room)
            except OSError:
                continue  # missing, damaged, or larger than what is left of the message
            room -= len(objects[path])
        return Delivery(objects, record.taken)

    def _collect(self, node: int, data: bytes) -> bool:
        """Keep what a node has put; return whether there was anything.

        A node that refuses is passed over: it must not stop the others.
        """
        record = self._records[node]
        try:
            answer = decode_answer(data)
        except EncodingError as error:
            _log.warning("node %d sends something else than an answer: %s", node, error)
            return False
        if isinstance(answer, NodeRefusal):
            _log.warning("node %d cannot take part: %s", node, answer.sentence)
            return False
        record.wanted, taken = answer.wanted, []
        for path, content in answer.objects.items():
            payload = Payload.of(content)
            if payload.digest.hex() != path.rpartition("/")[2]:
                _log.warning("node %d puts an object that is not what it is named", node)
                continue
            if self._objects.put(path, payload) and mail_round(path) is not None:
                self._mail.append(path)
            record.brought.add(path)
            taken.append(path)
        record.taken = tuple(taken)
        return bool(taken or record.wanted)

    def _stored_mail(self) -> list[str]:
        """Return the paths of all mail that an earlier carrier has left."""
        root = self._objects.folder
        files = sorted((root / MAIL_FOLDER).glob("*/*/*/*/*/*"))
        paths: Sequence[str] = [file.relative_to(root).as_posix() for file in files]
        return [path for path in paths if mail_round(path) is not None]


def carry_until_finished(
    carrier: Carrier,
    state: Callable[[], LedgerSnapshot],
    on_round: Callable[[int], None],
    pause: Callable[[], None],
) -> Digest:
    """Exchange until a run is finished, and until what its last round has left is fetched.

    Args:
        carrier: of the run's objects.
        state: returns the state of its contract.
        on_round: called with the number of each round that is open.
        pause: called after an exchange without news.

    Returns:
        The head.

    Raises:
        ChainError: the chain is unreachable.
        TrainingError: Flower itself fails.
    """
    last_round = 0
    while (current := state()).stage is not LedgerStage.FINISHED:
        if current.round != last_round:
            last_round = current.round
            on_round(last_round)
        if not carrier.exchange(current.round):
            pause()
    # Whoever decided has put the last model just before.
    for _ in range(LAST_EXCHANGES):
        if not carrier.exchange(current.round):
            pause()
    return current.head


def _is_current(path: str, round_number: int) -> bool:
    """Return whether mail is of the open round, the one after it, or one just before it."""
    number = mail_round(path)
    return number is not None and round_number - MAIL_ROUNDS < number <= round_number + 1
