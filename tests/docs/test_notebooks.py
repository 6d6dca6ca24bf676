"""The notebooks run from first to last cell, each in a folder and a namespace of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
TIMEOUT_SECONDS = 300


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """Return a kernel; to import what training needs once takes as long as all notebooks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel()
    try:
        yield manager
    finally:
        manager.shutdown_kernel()
        manager.cleanup_resources()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, kernel: KernelManager) -> None:
    notebook = nbformat.read(path, as_version=4)
    alone = f"import os\nos.chdir({str(tmp_path)!r})\nget_ipython().reset(new_session=False)"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(alone))
    player = NotebookClient(notebook, km=kernel, timeout=TIMEOUT_SECONDS)
    try:
        player.execute()
    finally:
        assert player.kc is not None
        player.kc.stop_channels()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_there_are_six_notebooks_and_the_page_names_each() -> None:
    index = (ROOT / "docs" / "notebooks" / "index.md").read_text("utf-8")
    assert len(NOTEBOOKS) == 6
    assert all(f"({path.name})" in index for path in NOTEBOOKS)
