"""A real S3 server in this process, and buckets on it; its keys are public and for tests only."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

if TYPE_CHECKING:
    from _pytest.mark import MarkDecorator

ONE_SERVER: MarkDecorator = pytest.mark.xdist_group("s3")
"""One process loads what speaks S3; the others need not."""


@contextmanager
def served_s3() -> Iterator[str]:
    """Serve S3, and have fsspec find it."""
    pytest.importorskip("s3fs", reason="needs the extra [remote]")
    server_module = pytest.importorskip("moto.server", reason="needs moto's S3 server")
    import fsspec.config

    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        found = {"endpoint_url": url, "key": "PUBLIC-TEST-KEY", "secret": "PUBLIC-TEST-SECRET"}
        environment = {"NO_PROXY": "127.0.0.1", "AWS_DEFAULT_REGION": "us-east-1"}
        with patch.dict(fsspec.config.conf, {"s3": found}), patch.dict(os.environ, environment):
            yield url
    finally:
        server.stop()


def bucket() -> str:
    """Return a place in a new bucket of the server that runs."""
    import s3fs

    name = f"cmfl-{secrets.token_hex(4)}"
    s3fs.S3FileSystem().mkdir(name)
    return f"s3://{name}/federation"
