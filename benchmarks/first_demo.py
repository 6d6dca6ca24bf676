"""What the first command of the README takes on a fresh clone: minutes and disk.

    python -m benchmarks.first_demo    write docs/measured/first_demo.json

It clones the committed tree, installs the demo's environment there with pip, and plays the demo.
Most of the installation's time is downloads, so that it differs between networks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "docs" / "measured" / "first_demo.json"


def measure(clone: Path) -> dict[str, object]:
    """Return minutes and gigabytes of the two parts of `make demo` in a new clone."""
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
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
        RESULT.write_text(f"{json.dumps(measure(Path(folder) / 'clone'), indent=1)}\n", "utf-8")
