"""Prometheus metrics of a worker, served on loopback only."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clients.worker.failures import WorkPart
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from clients.worker.process.counters import WorkerCounters
    from clients.worker.worker import Worker

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


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
        metrics: to be served.
        port: of this machine, 0 for a free one; None not to serve.

    Yields:
        The port.

    Raises:
        ConfigurationError: the port is taken.
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
    _log.info("answers Prometheus on port %d of %s", server.server_port, LOOPBACK)
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
