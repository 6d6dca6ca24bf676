"""The notebooks run from first to last cell, each in a folder and a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.docs.notebook_player import ENTRY, FOLDER, KERNEL
from tests.processes import Forks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.processes import Forked

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
INLINE = "module://matplotlib_inline.backend_inline"
TIMEOUT_SECONDS = 300


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What plays notebooks in processes that need not import torch first."""
    with Forks(tmp_path_factory.mktemp("played"), ENTRY) as forks:
        yield forks


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(
    path: Path, tmp_path: Path, player: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, ipython, temporary = (tmp_path / name for name in ("here", "ipython", "temporary"))
    for folder in (here, ipython, temporary):
        folder.mkdir()
    monkeypatch.chdir(here)
    folders = {"IPYTHONDIR": str(ipython), "TMPDIR": str(temporary)}
    with player.start(path.stem, **folders, MPLBACKEND=INLINE) as process:
        process.wait(TIMEOUT_SECONDS)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")


def test_a_notebook_runs_in_a_kernel_of_jupyter(
    tmp_path: Path, player: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launched(command: list[str], env: dict[str, str], **_: object) -> Forked:
        assert command[1:3] == ["-m", KERNEL]
        process = player.start(*command[2:], **env)
        for stream in ("stdin", "stdout", "stderr"):
            setattr(process, stream, None)
        return process

    monkeypatch.setattr("jupyter_client.provisioning.local_provisioner.launch_kernel", launched)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(FOLDER / "first-run.ipynb", as_version=4)
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel()
    cells = NotebookClient(notebook, km=kernel, timeout=TIMEOUT_SECONDS)
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_there_are_six_notebooks_and_the_page_names_each() -> None:
    index = (FOLDER / "index.md").read_text("utf-8")
    assert len(NOTEBOOKS) == 6
    assert all(f"({path.name})" in index for path in NOTEBOOKS)
