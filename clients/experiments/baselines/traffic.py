"""Traffic of a round: bytes into and out of every client's link, phase by phase.

The paper gives every client one link of rate r (section IV-B). A round is a row of phases, one
after the other; within a phase all links work side by side, in both directions at once, so that the
busiest one decides how long it takes. Latency is no part of it: requests are counted instead. What
keeps blobs and envelopes for others (a server, a content-addressed store) has no link that limits.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ledger.protocol.types import ClientId

NUMBER_BYTES = 4
"""Bytes of one number of a model or an update: float32."""

COUNT_BYTES = 8
"""Bytes of a sample count, of a version, or of a question for one."""


@dataclass(frozen=True, slots=True)
class TrafficLink:
    """Bytes on one client's link.

    Attributes:
        received: bytes in.
        sent: bytes out.
    """

    received: int = 0
    sent: int = 0

    def __add__(self, other: TrafficLink) -> TrafficLink:
        """Return what the link carried in both."""
        return TrafficLink(self.received + other.received, self.sent + other.sent)


@dataclass(frozen=True, slots=True)
class TrafficPhase:
    """Traffic of one phase, in which all links work in parallel.

    Attributes:
        name: what it was for.
        links: of each client that sent or received anything.
        requests: questions that were asked one client by another.
    """

    name: str
    links: Mapping[ClientId, TrafficLink]
    requests: int = 0

    @property
    def busiest(self) -> int:
        """Bytes on the busiest link, in its busier direction; 0 if nothing was sent."""
        return max((max(link.received, link.sent) for link in self.links.values()), default=0)


@dataclass(frozen=True, slots=True)
class RoundTraffic:
    """Traffic of one round.

    Attributes:
        phases: one after the other.
    """

    phases: tuple[TrafficPhase, ...]

    @property
    def busiest(self) -> int:
        """The bytes that the round waits for: of each phase those on its busiest link."""
        return sum(phase.busiest for phase in self.phases)

    @property
    def requests(self) -> int:
        """Questions that were asked one client by another."""
        return sum(phase.requests for phase in self.phases)

    @property
    def total(self) -> TrafficLink:
        """Sum over all links."""
        return sum(self.links().values(), TrafficLink())

    def links(self) -> dict[ClientId, TrafficLink]:
        """Return what each client's link carried in the whole round, ascending by client."""
        links: defaultdict[ClientId, TrafficLink] = defaultdict(TrafficLink)
        for phase in self.phases:
            for client, link in phase.links.items():
                links[client] += link
        return dict(sorted(links.items()))


class PhaseCounter:
    """Counts one phase while it goes on.

    Args:
        name: what the phase is for.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._received: defaultdict[ClientId, int] = defaultdict(int)
        self._sent: defaultdict[ClientId, int] = defaultdict(int)
        self._requests = 0

    def send(self, client: ClientId, size: int) -> None:
        """Count bytes that a client uploads."""
        self._sent[client] += size

    def receive(self, client: ClientId, size: int) -> None:
        """Count bytes that a client downloads."""
        self._received[client] += size

    def move(self, sender: ClientId, receiver: ClientId, size: int) -> None:
        """Count bytes that one client sends to another."""
        self.send(sender, size)
        self.receive(receiver, size)

    def ask(self, asker: ClientId, asked: ClientId, question: int, answer: int) -> None:
        """Count a request and its response, in bytes."""
        self._requests += 1
        self.move(asker, asked, question)
        self.move(asked, asker, answer)

    def phase(self) -> TrafficPhase:
        """Return what was counted."""
        clients = sorted({*self._received, *self._sent})
        links = {
            client: TrafficLink(self._received[client], self._sent[client]) for client in clients
        }
        return TrafficPhase(self._name, links, self._requests)


def federated_traffic(participants: Iterable[ClientId], dimension: int) -> RoundTraffic:
    """Return what a round of typical federated learning sends, whatever its server makes of it.

    Every participant fetches the model, and sends its update with its sample count.
    """
    model = NUMBER_BYTES * dimension
    down, up = PhaseCounter("model"), PhaseCounter("updates")
    for client in participants:
        down.receive(client, model)
        up.send(client, model + COUNT_BYTES)
    return RoundTraffic((down.phase(), up.phase()))


def recorded_traffic(rounds: Sequence[RoundTraffic], dimension: int) -> dict[str, Any]:
    """Return what a row of an experiment keeps of a run's traffic, as plain values.

    Args:
        rounds: of the run, in order.
        dimension: d.

    Returns:
        `model`: bytes of one model. Over the whole run: `busiest`, what the rounds waited for,
        `phases`, of which it is the sum, by name, `sent` and `received` by all links together, and
        `requests`. `by_round`: what each round waited for. `clients`: who sent or received
        anything; in their order `client_sent` and `client_received`.
    """
    phases: defaultdict[str, int] = defaultdict(int)
    links: defaultdict[ClientId, TrafficLink] = defaultdict(TrafficLink)
    for round_ in rounds:
        for phase in round_.phases:
            phases[phase.name] += phase.busiest
        for client, link in round_.links().items():
            links[client] += link
    clients = sorted(links)
    return {
        "model": NUMBER_BYTES * dimension,
        "busiest": sum(round_.busiest for round_ in rounds),
        "phases": dict(phases),
        "sent": sum(link.sent for link in links.values()),
        "received": sum(link.received for link in links.values()),
        "requests": sum(round_.requests for round_ in rounds),
        "by_round": [round_.busiest for round_ in rounds],
        "clients": [int(client) for client in clients],
        "client_sent": [links[client].sent for client in clients],
        "client_received": [links[client].received for client in clients],
    }
