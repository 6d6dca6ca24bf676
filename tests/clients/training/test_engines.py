"""Every engine gives the same bytes: here, in workers of any number, and under each cap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from clients.devices import CAPS, SET_LATE, InstructionSet, available_caps, cap_of
from clients.models.model import Model, model_of
from clients.training.engine_factory import (
    environment_here,
    open_engine,
    require_engine,
    require_known,
)
from clients.training.jobs import evaluate
from clients.training.pool_engine import PoolEngine
from clients.training.port import Engine, LocalTraining, TrainingError, TrainingJob, TrainingPath
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.payloads import FLOAT32, NOT_ENCODABLE, Q8, Payload, PayloadForm
from ledger.protocol.rules.distance import SQUARED, plain_distances
from ledger.protocol.types import ClientId
from tests.clients.training.made import (
    BRANCHED,
    CONVOLUTIONAL,
    DATA,
    FORM,
    JOBS,
    SETS,
    SETTINGS,
    failing,
    jobs,
    start_of,
)
from tests.faults import times
from tests.patience import wait_until

if TYPE_CHECKING:
    from tests.processes import Forks

pytestmark = pytest.mark.xdist_group("processes")

START = start_of(CONVOLUTIONAL)


def opened(
    workers: int,
    model: Model = CONVOLUTIONAL,
    path: TrainingPath = "plain",
    form: PayloadForm = FLOAT32,
    settings: LocalTraining = SETTINGS,
) -> Engine:
    return open_engine(
        model,
        DATA,
        settings,
        device="cpu",
        workers=workers,
        path=path,
        sets=SETS,
        rows=2,
        form=form,
    )


@pytest.fixture(scope="module")
def one() -> Iterator[Engine]:
    with opened(1) as engine:
        yield engine


@pytest.fixture(scope="module")
def two(forks: Forks) -> Iterator[Engine]:
    with forks.children():
        engine = opened(2)
    with engine:
        yield engine


@pytest.fixture(params=["one", "two"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=[1, 2])
def rounding(request: pytest.FixtureRequest, forks: Forks) -> Iterator[Engine]:
    with forks.children():
        engine = opened(request.param, form=Q8)
    with engine:
        yield engine


def digests(engine: Engine, chosen: list[TrainingJob]) -> dict[int, bytes]:
    trained = engine.train(start_of(CONVOLUTIONAL), chosen)
    assert [update.client for update in trained] == [job.client for job in chosen]
    assert all(update.payload.digest == sha256(bytes(update.payload.data)) for update in trained)
    return {update.client: update.payload.digest for update in trained}


def test_two_workers_give_the_bytes_of_one_in_any_order(one: Engine, two: Engine) -> None:
    expected = digests(one, JOBS)
    assert len(set(expected.values())) == len(JOBS)
    assert digests(two, JOBS) == digests(two, JOBS[::-1]) == expected
    assert digests(two, JOBS[2:3]) == {JOBS[2].client: expected[JOBS[2].client]}
    assert digests(two, []) == digests(one, []) == {}


def test_updates_are_read_only_in_reused_memory(engine: Engine) -> None:
    first = engine.train(START, JOBS)
    kept = [update.vector.copy() for update in first]
    assert all(not update.vector.flags.writeable for update in first)
    assert all(update.vector.shape == (CONVOLUTIONAL.dimension,) for update in first)
    second = engine.train(START + np.float32(0.01), JOBS)
    for before, now, was in zip(first, second, kept, strict=True):
        assert np.shares_memory(before.vector, now.vector)
        assert not np.array_equal(before.vector, was)


def test_another_form_rounds_updates_where_they_are_trained(one: Engine, rounding: Engine) -> None:
    expected = [Q8.payload(update.vector) for update in one.train(START, JOBS)]
    for update, payload in zip(rounding.train(START, JOBS), expected, strict=True):
        assert (update.payload, update.payload.size) == (payload, payload.size)
        assert bytes(update.payload.data) == payload.data
        assert payload.update is not None
        assert np.array_equal(update.vector, payload.update)
        assert update.payload.update is update.vector
        assert not update.vector.flags.writeable
        copy = update.copy()
        assert not np.shares_memory(copy.vector, update.vector)
        assert (copy.payload, copy.vector.tolist()) == (payload, update.vector.tolist())


def test_an_update_that_no_form_holds_stays_as_trained(rounding: Engine) -> None:
    start = START.copy()
    start[:] = np.inf
    (update,) = rounding.train(start, JOBS[:1])
    assert bytes(update.payload.data) == NOT_ENCODABLE
    assert update.payload == Payload.of(NOT_ENCODABLE)
    assert update.payload.update is None
    assert update.vector.shape == START.shape
    assert not np.isfinite(update.vector).all()


def test_more_clients_than_announced_fit_without_losing_an_update(engine: Engine) -> None:
    few = digests(engine, JOBS[:2])
    held = engine.train(START, JOBS[:2])
    everybody = digests(engine, jobs(*range(DATA.clients)))
    assert {client: everybody[client] for client in few} == few
    assert all(len(update.payload.data) == 4 * CONVOLUTIONAL.dimension for update in held)


def test_an_update_is_of_the_start_of_its_call(one: Engine, two: Engine) -> None:
    other = START + np.float32(0.01)
    assert [u.payload.digest for u in two.train(other, JOBS)] == [
        u.payload.digest for u in one.train(other, JOBS)
    ]
    assert digests(two, JOBS) == digests(one, JOBS)


def test_every_set_of_samples_comes_to_the_same_everywhere(engine: Engine) -> None:
    expected = {n: evaluate(CONVOLUTIONAL, START, s, DATA.collate) for n, s in SETS.items()}
    begun = engine.evaluate(START, list(SETS))
    assert begun() == tuple(expected.values())
    assert begun() == tuple(expected.values())
    assert engine.evaluate(START, ["client 1", "test"])() == (
        expected["client 1"],
        expected["test"],
    )
    assert engine.evaluate(START, [])() == ()


def test_an_evaluation_goes_on_beside_training_and_another_evaluation(one: Any, two: Any) -> None:
    vector = START.copy()
    first = two.evaluate(vector, ["test"])
    vector[:] = 0  # what the caller does with it afterwards is of no account
    second = two.evaluate(vector, ["test"])
    trained = digests(two, JOBS)
    assert first() == one.evaluate(START, ["test"])()
    assert second() == one.evaluate(vector, ["test"])()
    assert trained == digests(one, JOBS)


def test_distances_are_those_of_the_rule(engine: Engine) -> None:
    updates = {ClientId(u.client): u.vector for u in engine.train(START, JOBS[:3])}
    members = sorted(updates)[:2]
    found = engine.distances(SQUARED, None, updates, members)
    expected = plain_distances(SQUARED, None, updates, members)
    assert np.allclose(found, expected, rtol=1e-12, atol=0)


def test_invalid_jobs_are_refused_and_the_engine_continues(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"start: float32 .* not float32"):
        engine.train(START[:-1], JOBS)
    with pytest.raises(ValueError, match=r"start: float64 .* not float32"):
        engine.train(START.astype(np.float64), JOBS)
    with pytest.raises(ValueError, match="client 8 of 8"):
        engine.train(START, jobs(8))
    with pytest.raises(ValueError, match="client -1 of 8"):
        engine.train(START, jobs(-1))
    with pytest.raises(ValueError, match="seed of 31 bytes for client 0"):
        engine.train(START, [TrainingJob(0, bytes(31))])
    with pytest.raises(ValueError, match="two jobs of one client"):
        engine.train(START, jobs(1, 2, 1))
    with pytest.raises(ValueError, match=r"vector: float32 .* not float32"):
        engine.evaluate(START[1:], ["test"])
    with pytest.raises(ValueError, match="no set of samples 'tests'"):
        engine.evaluate(START, ["tests"])
    assert digests(engine, JOBS[:1])


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_a_number_of_workers_out_of_range_is_refused(workers: int) -> None:
    with pytest.raises(ConfigurationError, match=f"workers = {workers}: must be 1 .. 256"):
        opened(workers)


def test_a_model_that_fails_is_an_error_that_says_how() -> None:
    model = model_of(failing, FORM)
    with opened(1, model) as engine:
        assert len(engine.train(start_of(model), jobs(0))) == 1
        with pytest.raises(TrainingError, match="the model failed: IndexError: index 7 is out"):
            engine.train(start_of(model), jobs(0, 1))


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("path", ["plain", "lockstep"])
def test_two_calibrated_workers_give_the_bytes_of_one(path: TrainingPath) -> None:
    calibrated = SETTINGS.model_copy(update={"calibrated": True})
    with (
        opened(1, path=path, settings=calibrated) as alone,
        opened(2, path=path, settings=calibrated) as pool,
        opened(1, path=path) as plain,
    ):
        assert digests(pool, JOBS) == digests(alone, JOBS)
        assert not set(digests(alone, JOBS).values()) & set(digests(plain, JOBS).values())


@pytest.mark.usefixtures("forked_children")
def test_many_workers_give_equal_bytes_and_end_when_one_dies() -> None:
    start = start_of(BRANCHED)
    with opened(1, BRANCHED) as alone:
        expected = [update.payload.digest for update in alone.train(start, JOBS)]
    with opened(times(3, 8), BRANCHED) as many:
        assert isinstance(many, PoolEngine)
        trained = many.train(start, JOBS)
        assert [update.payload.digest for update in trained] == expected
        processes = many.processes
        os.kill(processes[0], signal.SIGKILL)
        said = f"training worker {processes[0]} ended by signal 9"
        with pytest.raises(TrainingError, match=said):
            many.train(start, JOBS)
        assert not many.processes
        assert not any(is_running(pid) for pid in processes)
        # Updates that are there stay; nothing more can be had.
        assert [sha256(bytes(update.payload.data)) for update in trained] == expected
        with pytest.raises(TrainingError, match="the engine is closed"):
            many.train(start, JOBS)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


OTHER_CAP: InstructionSet = "default" if cap_of(os.environ) != "default" else "avx2"
"""A cap under which this process has not started."""
CAPPABLE = pytest.mark.skipif(
    OTHER_CAP not in available_caps(), reason="this processor has no instruction set to choose"
)


def caps_opened(cap: InstructionSet | None) -> Engine:
    return open_engine(
        BRANCHED, DATA, SETTINGS, device="cpu", workers=1, path="plain", sets={}, rows=2, isa=cap
    )


@CAPPABLE
@pytest.mark.usefixtures("forked_children")
def test_a_cap_that_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.training.pool_engine.capped", lambda _: nullcontext())
    with pytest.raises(ConfigurationError, match=f"machine.isa = {OTHER_CAP}: this torch uses"):
        caps_opened(OTHER_CAP)


def test_variables_set_after_torchs_import_are_no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    require_known(environment_here("plain", "cpu"))
    for name, value in CAPS[OTHER_CAP].items():
        monkeypatch.setenv(name, value)
    here = environment_here("plain", "cpu")
    assert here.isa == f"{torch.backends.cpu.get_cpu_capability().lower()} {SET_LATE}"
    with pytest.raises(ConfigurationError, match="after this process started"):
        require_known(here)
    require_known(environment_here("plain", "cpu", OTHER_CAP))  # another process trains


def test_a_cap_this_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.devices._first_processor", dict)
    for name in CAPS:
        with pytest.raises(ConfigurationError, match=f"machine.isa = {name}: "):
            caps_opened(name)
        with pytest.raises(ConfigurationError, match=f"machine.isa = {name}: "):
            require_engine("cpu", None, name)


def test_a_cap_of_a_gpu_or_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"with machine\.engine = ray"):
        require_engine("cpu", "local", "default")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigurationError, match=r"with machine\.device = cuda"):
        require_engine("auto", None, "default")


RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.clients.training.made import JOBS
from tests.clients.training.test_engines import START, opened

if __name__ == "__main__":
    engine = opened(2)
    for line in sys.stdin:
        trained = engine.train(START, JOBS)
        print(*engine.processes, *(update.payload.digest.hex() for update in trained), flush=True)
"""

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_workers_ignore_interrupts_and_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    # Not "-W error", by which the resource tracker would swallow its own complaint.
    command = [sys.executable, str(script), str(REPOSITORY)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        workers, made = trained(process)
        try:
            with opened(1) as alone:
                assert made == [digest.hex() for digest in digests(alone, JOBS).values()]
            assert len(workers) == 2
            for pid in workers:
                assert "MALLOC_TOP_PAD_=" in Path(f"/proc/{pid}/environ").read_text()
                os.kill(pid, signal.SIGINT)
            assert trained(process) == (workers, made)
        finally:
            process.kill()
        # The pipe ends when the last process that writes to it has ended, and that is the one
        # that complains of names which were left behind.
        assert process.stderr is not None
        assert process.stderr.read() == ""
    wait_until(lambda: not any(map(is_running, workers)))


def trained(process: subprocess.Popen[str]) -> tuple[list[int], list[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("train\n")
    process.stdin.flush()
    words = process.stdout.readline().split()
    return [int(pid) for pid in words[: -len(JOBS)]], words[-len(JOBS) :]
