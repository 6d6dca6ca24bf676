"""The notebooks run from first to last cell, each in a folder and a kernel of its own."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.processes import Forked, Forks

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
KERNEL = "ipykernel_launcher"
SMALLER = {
    "adapters": {"    rounds=5,\n": "    rounds=2,\n"},
    "attack-study": {
        f"    rounds={rounds},\n    seeds=range(2),\n": "    rounds=1,\n    seeds=range(1),\n"
        for rounds in (3, 4)
    },
}
"""Shown large, run small: as many methods, attacks and rates, of fewer rounds and seeds."""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def be_kernel() -> None:
    """Be a kernel of Jupyter, forked from a process that has imported torch."""
    del sys.argv[:2]
    sys.argv.insert(0, KERNEL)
    runpy.run_module(KERNEL, run_name="__main__")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(tmp_path_factory.mktemp("kernels"), f"{__name__}:be_kernel") as forks:
        yield forks


@each_notebook
def test_every_cell_of_a_notebook_runs(
    path: Path, tmp_path: Path, kernels: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launched(command: list[str], env: dict[str, str], **_: object) -> Forked:
        assert command[1:3] == ["-m", KERNEL]
        process = kernels.start(*command[1:], **env)
        for stream in ("stdin", "stdout", "stderr"):
            setattr(process, stream, None)
        return process

    monkeypatch.setattr("jupyter_client.provisioning.local_provisioner.launch_kernel", launched)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(path, as_version=4)
    for shown, small in SMALLER.get(path.stem, {}).items():
        (cell,) = [cell for cell in notebook.cells if shown in cell.source]
        cell.source = cell.source.replace(shown, small)
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel()
    cells = NotebookClient(notebook, km=kernel, timeout=300)
    try:
        cells.execute()
    finally:
        assert cells.kc is not None
        cells.kc.stop_channels()
        kernel.shutdown_kernel()
        kernel.cleanup_resources()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert outputs
    assert not [output for output in outputs if output.get("name") == "stderr"]


@each_notebook
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert f"({path.name})" in (FOLDER / "index.md").read_text("utf-8")
