"""Metrics for Prometheus, and a log line for each request.

Neither contains a header, a query or a token: only endpoint, status and duration. A line is JSON,
so that no path can look like another line.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import structlog
from fastapi import APIRouter, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_PATH = 300
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """Counters of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "cmfl_requests", "Answered requests.", ("endpoint", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "cmfl_request_seconds",
            "Seconds until an answer was sent.",
            ("endpoint",),
            buckets=_SECONDS,
            registry=self.registry,
        )

    def router(self) -> APIRouter:
        """Return the route of the metrics."""
        router = APIRouter(include_in_schema=False)
        router.get("/metrics", response_class=Response)(self.exposition)
        return router

    def exposition(self) -> Response:
        """Return the metrics as Prometheus reads them."""
        return Response(
            generate_latest(self.registry),
            headers={"Cache-Control": "no-store"},
            media_type=CONTENT_TYPE_LATEST,
        )


class MetricsMiddleware:
    """Counts and times every request, and writes its line."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, logs: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log = _access_log() if logs else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, sent = time.perf_counter(), 500, 0

        async def counted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            seconds = time.perf_counter() - start
            endpoint = _endpoint(scope)
            self._metrics.requests.labels(endpoint, str(status)).inc()
            self._metrics.seconds.labels(endpoint).observe(seconds)
            if self._log is not None:
                self._log.info(
                    "request",
                    method=scope["method"],
                    path=scope["path"][:MAX_PATH],
                    status=status,
                    bytes=sent,
                    milliseconds=round(1000 * seconds, 1),
                    client=scope["client"][0] if scope.get("client") else None,
                )


def _access_log() -> Any:
    stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)
    return structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr), processors=[stamped, structlog.processors.JSONRenderer()]
    )


def _endpoint(scope: Scope) -> str:
    """Return the path's pattern, so that the number of labels is bounded."""
    return str(getattr(scope.get("route"), "path", "none"))
