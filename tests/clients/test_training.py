"""Many clients in, many updates out: the same bytes at any number of workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from clients.datasets.registry import load_dataset
from clients.local_sgd import LocalTraining, TrainingJob
from clients.models.registry import MODELS, model_named
from clients.training import TrainingEngine, TrainingError
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.sampling import training_seed
from ledger.protocol.types import ClientId, Digest

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = load_dataset("digits", 12, np.random.default_rng(0))
SETTINGS = LocalTraining(learning_rate=0.5, batch_size=16, local_steps=5)
JOBS = [
    TrainingJob(i, training_seed(Digest(bytes(32)), ClientId(i))) for i in (7, 2, 11, 0, 5, 3, 8)
]


def engine(name: str = "softmax", workers: int = 1) -> TrainingEngine:
    model = model_named(name, DATA.input_shape, DATA.classes)
    return TrainingEngine(model, DATA.train, SETTINGS, workers=workers)


def start(one: TrainingEngine) -> np.ndarray:
    return one.model.initial(np.random.default_rng(3))


@pytest.mark.parametrize("name", MODELS)
def test_updates_do_not_depend_on_the_other_jobs_nor_on_their_order(name: str) -> None:
    with engine(name) as one:
        w = start(one)
        together = one.train(w, JOBS)
        assert together.shape == (7, one.model.dimension)
        assert together.dtype == np.float32
        shuffled = one.train(w, JOBS[::-1])
        alone = [one.train(w, [job])[0] for job in JOBS]
    assert together.tobytes() == shuffled[::-1].tobytes() == np.stack(alone).tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_two_workers_give_the_same_bytes_as_one(name: str) -> None:
    with engine(name) as one, engine(name, workers=2) as two:
        w = start(one)
        assert one.train(w, JOBS).tobytes() == two.train(w, JOBS).tobytes()
        assert one.train(w, JOBS[:1]).tobytes() == two.train(w, JOBS[:1]).tobytes()
        assert two.train(w, []).shape == (0, one.model.dimension)


def test_the_callers_thread_setting_and_torch_seed_change_nothing() -> None:
    before = torch.get_num_threads()
    with engine("cnn") as one:
        w = start(one)
        first = one.train(w, JOBS)
        try:
            torch.set_num_threads(2)
            torch.manual_seed(99)
            assert first.tobytes() == one.train(w, JOBS).tobytes()
        finally:
            torch.set_num_threads(before)


def test_another_seed_gives_another_update_and_the_start_is_left_alone() -> None:
    with engine() as one:
        w = start(one)
        kept = w.copy()
        first = one.train(w, [TrainingJob(0, bytes(32))])
        assert not np.array_equal(first, one.train(w, [TrainingJob(0, bytes([1] * 32))]))
    assert np.array_equal(w, kept)


def test_taking_the_update_lowers_the_loss() -> None:
    client = DATA.train[0]
    with engine() as one:
        w = start(one)
        update = one.train(w, [TrainingJob(0, bytes(32))])[0]

        def loss(vector: np.ndarray) -> float:
            logits = one.model.logits(torch.tensor(vector), torch.tensor(client.x))
            return float(torch.nn.functional.cross_entropy(logits, torch.tensor(client.y)))

        assert loss(w - update) < loss(w)


def test_a_wrong_start_client_or_seed_is_refused() -> None:
    with engine() as one:
        w = start(one)
        with pytest.raises(ValueError, match="not float32"):
            one.train(w[:-1], JOBS)
        with pytest.raises(ValueError, match="not float32"):
            one.train(w.astype(np.float64), JOBS)
        with pytest.raises(ValueError, match="client 12 of 12"):
            one.train(w, [TrainingJob(12, bytes(32))])
        with pytest.raises(ValueError, match="seed of 31 bytes"):
            one.train(w, [TrainingJob(0, bytes(31))])


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_a_number_of_workers_out_of_range_is_refused(workers: int) -> None:
    with pytest.raises(ConfigurationError, match=f"workers = {workers}"):
        engine(workers=workers)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_is_refused_where_there_is_none() -> None:
    model = model_named("softmax", DATA.input_shape, DATA.classes)
    with pytest.raises(ConfigurationError, match="no CUDA"):
        TrainingEngine(model, DATA.train, SETTINGS, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", MODELS)
def test_cuda_repeats_its_own_bytes_and_is_close_to_the_cpu(name: str) -> None:
    model = model_named(name, DATA.input_shape, DATA.classes)
    with engine(name) as cpu, TrainingEngine(model, DATA.train, SETTINGS, "cuda") as cuda:
        w = start(cpu)
        first = cuda.train(w, JOBS)
        assert first.tobytes() == cuda.train(w, JOBS[::-1])[::-1].tobytes()
        assert np.allclose(first, cpu.train(w, JOBS), atol=1e-4)


RUNNER = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.clients.test_training import JOBS, engine, start

if __name__ == "__main__":
    one = engine(workers=2)
    one.train(start(one), JOBS)
    print(*(process.pid for process in one._pool._processes.values()), flush=True)
    if sys.argv[2] == "wait":
        input()
    one.close()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "runner.py"
    path.write_text(RUNNER)
    return path


def command(script: Path, mode: str) -> list[str]:
    return [sys.executable, "-W", "error", str(script), str(Path(__file__).parents[2]), mode]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def waiting_run(script: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    with subprocess.Popen(
        command(script, "wait"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, [int(pid) for pid in process.stdout.readline().split()]
        process.kill()


def test_workers_end_cleanly_and_say_nothing(script: Path) -> None:
    done = subprocess.run(command(script, "end"), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not any(is_running(int(pid)) for pid in done.stdout.split())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_do_not_outlive_a_parent_that_was_killed(
    waiting_run: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, workers = waiting_run
    assert workers
    assert all(is_running(pid) for pid in workers)
    process.kill()
    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in workers)


def test_a_worker_that_was_killed_is_an_error_and_not_a_wrong_result() -> None:
    with engine(workers=2) as two:
        w = start(two)
        two.train(w, JOBS)
        assert two._pool is not None
        for pid in two._pool._processes:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(TrainingError, match="worker ended"):
            two.train(w, JOBS)
