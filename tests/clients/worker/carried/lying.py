"""A carrier that lies about each object once: keeps it back, changes it, or brings another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clients.worker.carried.carrier import Carrier
from clients.worker.carried.exchange import Delivery
from ledger.protocol.documents.envelope import decode_envelope, encode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import ClientId
from ledger.storage.object_paths import is_blob

if TYPE_CHECKING:
    from random import Random

    from clients.runs.flower.nodes import Nodes
    from ledger.protocol.types import Domain
    from ledger.storage.folder import FolderObjects

LIES = ("keeps back", "changes", "exchanges", "renames", "forges")


class LyingCarrier(Carrier):
    """Lies once to each node about each object, and tells the truth the next time.

    Attributes:
        lies: how often each was used.
    """

    def __init__(
        self, nodes: Nodes, objects: FolderObjects, seconds: float, domain: Domain, rng: Random
    ) -> None:
        super().__init__(nodes, objects, seconds)
        self.lies = dict.fromkeys(LIES, 0)
        self._domain = domain
        self._rng = rng
        self._lied: dict[int, set[str]] = {}

    def exchange(self, round_number: int) -> bool:
        before = {node: set(lied) for node, lied in self._lied.items()}
        has_news = super().exchange(round_number)
        for node, lied in self._lied.items():
            # What was not brought in truth is still to be brought.
            self._records[node].brought -= lied - before.get(node, set())
        return has_news

    def delivery(self, node: int) -> Delivery:
        true, lied = super().delivery(node), self._lied.setdefault(node, set())
        objects: dict[str, bytes] = {}
        for path, data in reversed(list(true.objects.items())):
            if path in lied:
                objects[path] = data
                continue
            lied.add(path)
            lie = self._rng.choice(LIES)
            self.lies[lie] += 1
            objects |= self._about(lie, path, data)
        # It also forgets at times that it has anything, so that a node sends it again.
        return Delivery(objects, true.taken if self._rng.random() < 0.5 else ())

    def _about(self, lie: str, path: str, data: bytes) -> dict[str, bytes]:
        if lie == "changes":
            place = self._rng.randrange(len(data))
            return {path: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]}
        if lie == "exchanges":
            other = self._rng.choice(self._mail or [path])
            return {path: self._objects.get(other, 1 << 20)}
        if lie == "renames":
            folder, _, name = path.rpartition("/")
            if is_blob(path):
                return {f"ff/ff{name[2:]}": data}
            *parts, kind = folder.split("/")
            return {"/".join([*parts, str((int(kind) + 1) % 7), name]): data}
        if lie == "forges" and not is_blob(path):
            return self._forged(path, data)
        return {}

    def _forged(self, path: str, data: bytes) -> dict[str, bytes]:
        """Return an envelope under the name of another client."""
        try:
            envelope = decode_envelope(data, self._domain)
            forged = replace(envelope, client=ClientId((envelope.client + 1) % 12))
            content = encode_envelope(forged)
        except (EncodingError, ValueError):
            return {}
        return {f"{path.rpartition('/')[0]}/{sha256(content).hex()}": content}
