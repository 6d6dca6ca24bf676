"""The default home and run, and the environment variables of a node and a service."""

from __future__ import annotations

from pathlib import Path

HOME = Path("cmfl-home")
RUN = "run"
URL_VARIABLE = "CMFL_RPC_URL"
API_TOKEN_VARIABLE = "CMFL_API_TOKEN"  # noqa: S105 - its name
