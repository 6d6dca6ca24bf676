"""The core's tests under each Python of the matrix: `python3 -m tests.packaging.matrix 3.11 3.12`.

Each Python has an environment of its own in `.matrix/`, with the pinned packages and without torch:
what is installed is what an auditor and a service have. With `--floors` the packages have the
lowest versions that the metadata admits, instead of the pinned ones.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.packaging.environments import CONSTRAINTS, ROOT, Environment

EXTRAS = "api,fast,data"
TOOLS = ("eth-tester", "hypothesis", "packaging", "pytest", "pytest-xdist", "pyyaml")
"""Of the extra `dev` what these tests need; the others have no wheel for every Python."""
REVM = "pyrevm; python_version < '3.13'"
"""Where it has a wheel; elsewhere the tests of what is played on it are skipped."""
TESTS = ("protocol", "actors", "history", "packaging/test_core.py")
FLOORS_OF = ("dependencies", "cli", "api", "fast", "data")


def interpreter(version: str) -> str | None:
    """Return the path of a Python of this version; None if there is none that starts."""
    path = shutil.which(f"python{version}")
    if path is None:
        return None
    script = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    asked = subprocess.run([path, "-c", script], capture_output=True, text=True, check=False)
    found, _, executable = asked.stdout.strip().partition(" ")
    return executable if asked.returncode == 0 and found == version else None


def floors() -> list[str]:
    """Return the lowest admitted version of each requirement, as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lists = project["optional-dependencies"] | {"dependencies": project["dependencies"]}
    lines = [line for name in FLOORS_OF for line in lists[name]]
    named = [re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", line) for line in lines]
    return [f"{match[1]}=={match[2]}" for match in named if match is not None]


def main() -> int:
    """Run the matrix; return the number of Pythons under which a test failed."""
    at_floors, versions = "--floors" in sys.argv, [w for w in sys.argv[1:] if w[0] != "-"]
    failed = 0
    for version in versions:
        python = interpreter(version)
        if python is None:
            sys.stdout.write(f"Python {version} is passed over: this machine has none\n")
            continue
        parent = ROOT / ".matrix" / (f"{version}-floors" if at_floors else version)
        failed += not _passes(parent, python, at_floors=at_floors)
    return failed


def _passes(parent: Path, python: str, *, at_floors: bool) -> bool:
    """Install and test under one Python; the environment is removed when all tests passed."""
    shutil.rmtree(parent, ignore_errors=True)
    environment = Environment.create(parent, python)
    constraints = CONSTRAINTS
    if at_floors:
        constraints = parent / "floors.txt"
        constraints.write_text("\n".join(floors()) + "\n", "utf-8")
    seconds = environment.pip(
        "install",
        "--quiet",
        "--constraint",
        constraints,
        *TOOLS,
        REVM,
        "--editable",
        f"{ROOT}[{EXTRAS}]",
    )
    sys.stdout.write(f"{parent.name}: installed in {seconds:.0f} s\n")
    sys.stdout.flush()
    options = ["-q", "-n", "2", "-p", "no:cacheprovider", "-m"]
    # From 3.13 on, SQLite's connections warn where a test leaves one to the garbage collector.
    unclosed = ("-W", "ignore:unclosed database:ResourceWarning")
    words = ["-m", "pytest", *unclosed, *options, "not slow and not network"]
    tests = [f"tests/{name}" for name in TESTS]
    ended = subprocess.run(
        [environment.path / "bin/python", *words, *tests],
        cwd=ROOT,
        env=environment.variables(),
        check=False,
    )
    if ended.returncode == 0:
        shutil.rmtree(parent)
    return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
