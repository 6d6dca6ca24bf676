"""The README's first command, shortened: runs, audits, table and service from one home."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from unittest.mock import patch

import pytest

from cli.demo.runs import Work, steps_of
from cli.demo.service import MOST_PORTS, free_port
from ledger.chain.embedded.chain import EmbeddedChain
from ledger.protocol.errors import ConfigurationError
from tests.e2e.sessions import PATIENCE_SECONDS, start

METHODS = ("CMFL, strategy I", "CMFL, strategy II", "CMFL, strategy III")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def demo(home: Path, port: int, seeds: int = 1) -> subprocess.CompletedProcess[str]:
    options = ("--seeds", str(seeds), "--rounds", "2", "--port", str(port))
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "demo", "--home", str(home), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_the_demo_runs_audits_compares_and_serves(tmp_path: Path) -> None:
    home, port = tmp_path / "demo", unused_port()
    left_over = home / "seed7"
    left_over.mkdir(parents=True)
    (home / "made-by-cmfl-demo").touch()
    ended = demo(home, port, seeds=2)
    assert ended.returncode == 0, ended.stderr
    for row in ("FedAvg, 30 clients", "FedAvg, 18 clients", *METHODS):
        assert f"│ {row} " in ended.stdout
    # Two seeds, clean and attacked, two rounds each: of three methods on the ledger, of two beside.
    said = " ".join(ended.stdout.split())
    assert "24 rounds are recorded and audited; to compare with, 16 of FedAvg are" in said
    assert "II is the paper's for clients that are all honest" in said
    assert "mean ± standard error over 2 seeds" in ended.stdout
    assert "PASSED: all ten steps hold for all 2 rounds" in ended.stdout
    assert "12 of 12 runs on the ledger pass their audit." in ended.stdout
    assert f"REST service at http://127.0.0.1:{port} answered: 6 deployments." in ended.stdout
    assert f"  http://127.0.0.1:{port}/dashboard/#/runs/" in ended.stdout
    assert not left_over.exists(), "a demo's own folder is made anew"


def test_the_readme_counts_the_rounds_that_the_demo_counts() -> None:
    steps = steps_of(seeds=4, rounds=40)
    assert steps == {Work.RECORDED: 960, Work.AVERAGED: 640, Work.AUDITED: 24}
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    assert f"make demo    # {steps[Work.RECORDED]} rounds" in readme


def test_a_demo_takes_the_next_port_that_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = free_port(port)
        assert port < found < port + MOST_PORTS
        with (
            patch("cli.demo.service.port_is_taken", lambda _: True),
            pytest.raises(ConfigurationError, match=f"--port {port}: somebody listens there"),
        ):
            free_port(port)
    assert free_port(port) == port


def test_an_interrupt_ends_the_demo_and_all_its_processes(tmp_path: Path) -> None:
    options = ("--home", str(tmp_path / "demo"), "--seeds", "2", "--port", str(unused_port()))
    running = start(["demo", *options], PYTHONUNBUFFERED="1")
    chains = (tmp_path / "demo" / "chain.sqlite", tmp_path / "demo" / "seed1" / "chain.sqlite")
    deadline = time.monotonic() + PATIENCE_SECONDS
    # A home without a blob would not be kept.
    blobs = [chain.with_name("blobs") for chain in chains]
    while not all(folder.exists() for folder in blobs) and time.monotonic() < deadline:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 130
    for chain in chains:
        with EmbeddedChain.open(chain) as taken_up:
            assert taken_up.head().number >= 0


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    refused = demo(tmp_path, unused_port())
    assert refused.returncode == 2
    assert "was not made by a demo" in refused.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_the_service_says_where_it_listens_answers_and_ends_on_an_interrupt(
    tmp_path: Path,
) -> None:
    service = start(["serve", "--home", str(tmp_path), "--port", "0"], PYTHONUNBUFFERED="1")
    assert service.stdout is not None
    said = service.stdout.readline()
    address = next(word for word in said.split() if word.startswith("http://"))
    with urllib.request.urlopen(address + "health") as answer:
        assert json.load(answer)
    service.send_signal(signal.SIGINT)
    service.communicate(timeout=PATIENCE_SECONDS)
    assert service.returncode == 0
