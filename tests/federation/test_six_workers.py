"""Six worker processes go through five faults and lose nothing; `make faults` has the others."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest

from clients.configuration.parsing import plain_values
from clients.testnet import ChainKind, StoreKind
from clients.testnet.network import ChainPace, NetworkSettings, fitted_to_pace
from tests.cmfl.commands.conftest import succeeds
from tests.faults import times
from tests.federation.cells import Cell, Fault, Role
from tests.federation.checks import Wrong
from tests.federation.disturbed import DisturbedNetwork
from tests.federation.long_run import LongRun
from tests.federation.state import State
from tests.patience import slowness
from tests.processes import Forks

WORKERS = 6
LONGEST_RECOVERY_SECONDS = 600.0
LONGEST_SECONDS = 3600.0  # five faults take about forty on two cores that have nothing else to do
SIZES = (
    *("protocol.clients=18", "protocol.active_rate=0.667", "protocol.committee_rate=0.416667"),
    *("protocol.aggregation_rate=0.5", "protocol.rounds=60", "training.local_steps=2"),
)
FAULTS = (
    Cell(Fault.KILLED, Role.MEMBER),
    Cell(Fault.FROZEN, Role.FIRST_PRIMARY),
    Cell(Fault.CUT, Role.TRAINER),
    Cell(Fault.FALSE_SCORES, Role.MEMBER),
    Cell(Fault.NOT_FINITE, Role.TRAINER),
)


def pace() -> ChainPace:
    """Return the pace of a chain that this machine keeps up with now.

    No deadline is in reach, so that a slow machine decides in a later view. A view leaves room for
    the two blocks that make a commitment final, before which its update is not published, for the
    second by which time stamps are rounded, and for a look. Each block and look costs six workers,
    chain and store some work.
    """
    factor = max(1.0, slowness() / 2)  # two tests beside it do not matter
    return ChainPace(
        block_seconds=0.4 * factor,
        blocks_of_a_client=0.75,
        view_seconds=math.ceil(3 * factor),
        deadline_blocks=100_000,
        confirmations=2,
        poll_seconds=0.4 * factor,
    )


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_six_workers_go_through_five_faults(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.federation.recovery.RECOVERY_SECONDS", LONGEST_RECOVERY_SECONDS)
    own = pace()
    configuration = fitted_to_pace(plain_values("digits", settings=SIZES), own)
    settings = NetworkSettings(
        home=tmp_path / "home",
        configuration=configuration,
        workers=WORKERS,
        chain=ChainKind.EMBEDDED,
        store=StoreKind.SERVED,
        pace=own,
    )
    state, said = State(str(settings.chain)), list[str]()
    wanted = times(1, 3)
    with DisturbedNetwork(settings, said.append) as federation:
        run = LongRun(
            federation,
            state,
            np.random.default_rng(0),
            tmp_path / "backups",
            FAULTS,
            wanted,
            said.append,
        )
        ends = time.monotonic() + wanted * LONGEST_SECONDS
        run.run(lambda: time.monotonic() > ends)
    # A slow machine misses a view, and that is no fault.
    assert not [one for one in state.violations if one.wrong is not Wrong.LOST_WORK], said
    assert {cell: state.cells[cell].done for cell in FAULTS} == dict.fromkeys(FAULTS, wanted), said
    assert state.audited >= state.rounds, "an audit has checked every round"
    checks = succeeds("doctor", "--home", settings.home, "--json").json
    assert all(check["ok"] for check in checks), checks
    (row,) = succeeds("runs", "list", "--home", settings.home, "--json").json
    assert row["rounds"] >= state.rounds
