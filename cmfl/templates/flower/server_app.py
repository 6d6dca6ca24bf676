"""The ServerApp: actors of all clients score and vote here, SuperNodes train."""

from pathlib import Path

from cmfl.flower import server_app

app = server_app(Path(__file__).with_name("run.toml"))
