"""Counters of a worker's activity, and Prometheus metrics of it, served on loopback only."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from clients.worker.failures import WorkPart
from ledger.io.http import names_this_host
from ledger.protocol.documents.envelope import Envelope, EnvelopeKind
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payload import Payload
from ledger.protocol.types import ClientId, Digest, Phase
from ledger.storage.blobs import MAX_BLOB_BYTES, BlobStore
from ledger.storage.mailbox import Mailbox

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from clients.worker.worker import Worker

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class WorkerCounters:
    """Counts since the process started."""

    rounds: int = 0
    commitments: int = 0
    views: int = 0
    said: Counter[EnvelopeKind] = field(default_factory=Counter)
    bytes_put: int = 0
    bytes_got: int = 0
    _round: int = 0
    _committed: set[ClientId] = field(default_factory=set)
    _entered: set[tuple[ClientId, Phase, int]] = field(default_factory=set)

    @property
    def votes(self) -> int:
        return self.said[EnvelopeKind.REQUEST] + self.said[EnvelopeKind.REPLY]

    def look(self, worker: Worker) -> None:
        """Update the counters after a step."""
        chain, seats = worker.chain, worker.seats
        if chain is None or seats is None:
            return
        if chain.round != self._round:
            self._round = chain.round
            self.rounds += 1
            self._committed.clear()
            self._entered.clear()
        hosted = worker.hosting.signers
        now_there = {mined.client for mined in chain.commitments if mined.client in hosted}
        self.commitments += len(now_there - self._committed)
        self._committed |= now_there
        for member, present in worker.present().items():
            if present.span is not None:
                entered = (member, present.phase, present.span.view)
                self.views += entered not in self._entered
                self._entered.add(entered)


class CountingBlobs:
    """A blob store whose bytes are counted."""

    def __init__(self, blobs: BlobStore, counts: WorkerCounters) -> None:
        self._blobs = blobs
        self._counts = counts

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        """Return the verified blob with a digest."""
        data = self._blobs.get(digest, limit)
        self._counts.bytes_got += len(data)
        return data

    def has(self, digest: Digest) -> bool:
        """Return whether there is a blob with a digest."""
        return self._blobs.has(digest)

    def put(self, data: bytes) -> Digest:
        digest = self._blobs.put(data)
        self._counts.bytes_put += len(data)
        return digest

    def put_payload(self, payload: Payload) -> None:
        """Store a payload that this process has hashed."""
        self._blobs.put_payload(payload)
        self._counts.bytes_put += payload.size

    def remove(self, digest: Digest) -> None:
        self._blobs.remove(digest)

    def sync(self) -> None:
        """Make all stored blobs durable."""
        self._blobs.sync()


class CountingMailbox(Mailbox):
    """A mailbox whose new envelopes are counted."""

    def __init__(self, mailbox: Mailbox, counts: WorkerCounters) -> None:
        super().__init__(mailbox.objects)
        self._counts = counts

    def put(self, envelope: Envelope) -> bool:
        """Add an envelope; return whether it is new."""
        is_new = super().put(envelope)
        self._counts.said[envelope.kind] += is_new
        return is_new


class WorkerMetrics:
    """Collects a worker's metrics on each request."""

    def __init__(self, worker: Worker, counts: WorkerCounters, wall: Callable[[], float]) -> None:
        """Collect from a worker and its counters; `wall` returns Unix seconds."""
        self._worker = worker
        self._counts = counts
        self._wall = wall

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        counts, worker = self._counts, self._worker
        for name, about, value in (
            ("rounds", "Rounds seen to open.", counts.rounds),
            (
                "commitments",
                "Commitments of the worker's clients on the chain.",
                counts.commitments,
            ),
            ("votes", "Requests and replies that were said.", counts.votes),
            ("views", "Views that members have entered.", counts.views),
            ("blob_put_bytes", "Bytes of blobs that were put.", counts.bytes_put),
            ("blob_got_bytes", "Bytes of blobs that were got.", counts.bytes_got),
        ):
            yield CounterMetricFamily(f"cmfl_worker_{name}", about, value=value)
        errors = CounterMetricFamily("cmfl_worker_errors", "Failures.", labels=["part"])
        for part in WorkPart:
            errors.add_metric([str(part)], worker.failures.counts[part])
        yield errors
        newest, chain = worker.newest_block, worker.chain
        for name, about, level in (
            ("round", "The open round.", 0 if chain is None else chain.round),
            ("block", "The newest block seen.", 0 if newest is None else newest.number),
            (
                "behind_seconds",
                "How old the newest block is by this machine's clock.",
                0.0 if newest is None else self._wall() - newest.timestamp,
            ),
        ):
            yield GaugeMetricFamily(f"cmfl_worker_{name}", about, value=level)


@contextmanager
def serve_metrics(metrics: WorkerMetrics, port: int | None) -> Iterator[int | None]:
    """Serve metrics while the context is open.

    Args:
        port: of this machine, 0 for a free one; None not to serve.
    """
    if port is None:
        yield None
        return
    # Only those who want metrics need the package.
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, LOOPBACK, registry)
    except OSError as error:
        raise ConfigurationError(
            f"--metrics-port {port}: cannot listen on {LOOPBACK}: {error.strerror}; 0 takes a free "
            f"port"
        ) from error
    app = server.get_app()
    assert app is not None, "start_http_server sets the app"
    server.set_app(_for_this_host(app))
    _log.info("answers Prometheus on port %d of %s", server.server_port, LOOPBACK)
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _for_this_host(app: WSGIApplication) -> WSGIApplication:
    """Return an app that refuses a page of another site whose name resolves to this machine."""

    def answered(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if names_this_host(environ.get("HTTP_HOST", "")):
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"header Host: must be an address or localhost\n"]

    return answered
