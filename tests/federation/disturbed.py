"""A federation whose workers can be told to lie, and are reached through relays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from clients.testnet.network import LocalNetwork, NetworkPaths, WorkerSlot
from tests.federation.relay import Relay, Relays
from tests.federation.worker_faults import FAULT_VARIABLE, faults_from_file

ENTRY = "tests.federation.faulty_process:run"
FAULT_FILE = "fault"  # in a worker's folder; the worker reads it in each round


class ToldSlot(WorkerSlot):
    def environment(self, folder: Path) -> dict[str, str]:
        return {FAULT_VARIABLE: faults_from_file(folder / FAULT_FILE)}


class DisturbedNetwork(LocalNetwork):
    """A network with a relay before node and store for each worker."""

    entry = ENTRY
    slot = ToldSlot

    def __enter__(self) -> Self:
        self.relays = Relays()
        self._by_worker: list[tuple[Relay, ...]] = []
        try:
            return super().__enter__()
        except BaseException:
            self.relays.close()
            raise

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        self.relays.close()

    def relays_of(self, seat: WorkerSlot) -> tuple[Relay, ...]:
        return self._by_worker[seat.number]

    def path(self) -> NetworkPaths:
        direct = super().path()
        chain = self.relays.relay(self.node.port)
        if not direct.blobs.startswith("http"):
            self._by_worker.append((chain,))
            return replace(direct, chain=chain.url)
        store = self.relays.relay(urlsplit(direct.blobs).port or 0)
        self._by_worker.append((chain, store))
        return NetworkPaths(chain.url, store.url, store.url)
