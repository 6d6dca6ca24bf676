"""The ClientApp: it trains the clients of its SuperNode's partition."""

from pathlib import Path

from cmfl.flower import client_app

app = client_app(Path(__file__).with_name("run.toml"))
