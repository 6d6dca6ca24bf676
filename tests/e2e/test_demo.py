"""The README's first command, shortened: runs, audits, table and service from one home."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import pytest

from clients.testnet.network import free_port as unused_port
from cmfl.commands.demo import (
    AUDITED,
    AVERAGED,
    MOST_PORTS,
    RECORDED,
    _made_anew,
    free_port,
    steps_of,
)
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.errors import ConfigurationError
from tests.cmfl.commands.conftest import refusal
from tests.faults import times
from tests.patience import wait_until
from tests.processes import Forks

METHODS = ("CMFL, strategy I", "CMFL, strategy II", "CMFL, strategy III")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]


def test_the_demo_runs_audits_compares_and_serves(forks: Forks, tmp_path: Path) -> None:
    home, port = tmp_path / "demo", unused_port()
    left_over = home / "seed7"
    left_over.mkdir(parents=True)
    (home / "made-by-cmfl-demo").touch()
    seeds = times(1, 2)
    options = ("--seeds", seeds, "--rounds", 2, "--port", port)
    with forks.start("demo", "--home", home, *options) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    for row in ("FedAvg, 30 clients", "FedAvg, 18 clients", *METHODS):
        assert f"│ {row} " in out
    results = json.loads((home / "results.json").read_bytes())
    assert results["command"] == f"cmfl demo --seeds {seeds} --rounds 2"
    assert list(results["methods"]) == ["FedAvg, 30 clients", "FedAvg, 18 clients", *METHODS]
    attacked = results["methods"]["CMFL, strategy I"]["attacked"]
    assert len(attacked) == seeds
    assert f"{fmean(attacked):.3f}" in out
    # Clean and attacked, two rounds each: of three methods on the ledger, of two beside.
    said = " ".join(out.split())
    told = f"{12 * seeds} rounds are recorded and audited. For comparison, {8 * seeds} rounds of"
    assert f"{told} FedAvg" in said
    assert "II are the paper's, for a committee without attackers" in said
    assert "PASSED: all ten steps hold for all 2 rounds" in out
    assert f"{6 * seeds} of {6 * seeds} runs on the ledger pass their audit." in out
    assert f"REST service at http://127.0.0.1:{port} answered: 6 runs." in out
    assert f"  http://127.0.0.1:{port}/dashboard/#/runs/" in out
    assert not left_over.exists(), "a demo's own folder is made anew"


def test_the_readme_counts_the_rounds_that_the_demo_counts() -> None:
    steps = steps_of(seeds=4, rounds=40)
    assert steps == {RECORDED: 960, AVERAGED: 640, AUDITED: 24}
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    assert f"records {steps[RECORDED]} rounds" in readme


def test_a_demo_takes_the_next_port_that_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = free_port(port)
        assert port < found < port + MOST_PORTS
        with (
            patch("cmfl.commands.demo.is_port_taken", lambda _: True),
            pytest.raises(ConfigurationError, match=f"--port {port}: the port and"),
        ):
            free_port(port)
    assert free_port(port) == port


def test_an_interrupt_ends_the_demo_and_all_its_processes(tmp_path: Path) -> None:
    options = ("--home", tmp_path / "demo", "--seeds", 2, "--port", unused_port())
    running = Forks(tmp_path / "forks", "tests.processes:run_forking").start("demo", *options)
    chains = (tmp_path / "demo" / "chain.sqlite", tmp_path / "demo" / "seed1" / "chain.sqlite")
    # A home without a blob would not be kept.
    blobs = [chain.with_name("blobs") for chain in chains]
    wait_until(lambda: all(folder.exists() for folder in blobs))
    running.send_signal(signal.SIGINT)
    assert running.wait() == 130
    for chain in chains:
        with EmbeddedChain.open(chain) as taken_up:
            assert taken_up.head().number >= 0


def test_a_demo_in_use_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with _made_anew(home):
        (home / "chain.sqlite").touch()
        with pytest.raises(ConfigurationError, match="serves it"), _made_anew(home):
            pass
        assert (home / "chain.sqlite").exists()
    with _made_anew(home):
        assert not (home / "chain.sqlite").exists()


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert "was not made by a demo" in refusal("demo", "--home", tmp_path, "--seeds", 1)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
