"""The README's first command on a fresh clone: its results, its minutes and its disk.

    python -m benchmarks.first_demo    write first_demo.json and demo.json in docs/measured

It clones the committed tree, installs the demo's environment there with pip, and plays the demo.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import MEASURED, ROOT, keep


def measure(clone: Path) -> dict[str, object]:
    """Return minutes and gigabytes of the two parts of `make demo` in a new clone."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    minutes = []
    for target in (".venv/.clients", "demo"):
        begun = time.monotonic()
        subprocess.run(["make", target], cwd=clone, stdout=sys.stderr, check=True)
        minutes.append((time.monotonic() - begun) / 60)
    files = [path.lstat() for path in (clone / ".venv").rglob("*")]
    disk = sum(512 * file.st_blocks for file in files) / 1e9
    return {
        "command": "python -m benchmarks.first_demo",
        "installation minutes": round(minutes[0], 1),
        "installation GB": round(disk, 1),
        "demo minutes": round(minutes[1], 1),
    }


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        keep(MEASURED / "first_demo.json", measure(clone))
        shutil.copyfile(clone / "demo-home" / "results.json", MEASURED / "demo.json")
