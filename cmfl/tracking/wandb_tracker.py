"""Runs of Weights & Biases, offline: files that `wandb sync` uploads, if anybody wants to.

Nothing is sent. An offline run cannot be appended to, so a resumed run is written anew under the
same id.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cmfl.tracking.tracker import TrackedRow, TrackedRun

_MOST_IN_A_NAME = 100


class WandbTracker:
    """A folder of offline runs."""

    def __init__(self, place: str, project: str) -> None:
        """Use a folder, and a project of this name."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb: Any = wandb
        self._place, self._project = Path(place), project
        self._run: Any = None

    def open(self, run: TrackedRun, rows: Sequence[TrackedRow]) -> None:
        """Write the run's files anew; see `ExperimentTracker`."""
        self._place.mkdir(parents=True, exist_ok=True)
        for earlier in (self._place / "wandb").glob(f"offline-run-*-{run.key}"):
            shutil.rmtree(earlier)
        self._run = self._wandb.init(
            project=self._project,
            dir=str(self._place),
            id=run.key,
            name=run.title,
            mode="offline",
            reinit="create_new",
            config={**run.parameters, **run.tags},
            settings=self._wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_save_requirements=False,
            ),
        )
        for row in rows:
            self.log(row)

    def log(self, row: TrackedRow) -> None:
        """Add a round."""
        self._run.log(dict(row.metrics), step=row.round)

    def close(self, tags: Mapping[str, str], model: Path | None) -> str:
        """Add the tags to the summary, log the model as an artifact, and finish.

        Raises:
            FileNotFoundError: the run's file: W&B writes it in a process of its own, and reports
                no error of that.
        """
        self._run.summary.update(dict(tags))
        if model is not None:
            artifact = self._wandb.Artifact(
                f"model-{self._run.name}"[:_MOST_IN_A_NAME], type="model", metadata=dict(tags)
            )
            artifact.add_file(str(model))
            self._run.log_artifact(artifact)
        folder = Path(self._run.dir).parent
        self._run.finish()
        if not (folder / f"run-{self._run.id}.wandb").exists():
            raise FileNotFoundError(f"{folder} has no run-{self._run.id}.wandb")
        return str(folder)

    def abort(self) -> None:
        """Finish the files; a resumed run replaces them."""
        self._run.finish(exit_code=1)
