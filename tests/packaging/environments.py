"""Fresh virtual environments outside this checkout, with commands run and timed in them.

Only Python's own library is imported here, so that `python3 -m tests.packaging...` needs nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = "torch==2.13.0"  # goes first and alone, so that no other package chooses its build


class CommandFailedError(Exception):
    """A command ended otherwise than expected; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, whose commands run in a folder of their own."""

    path: Path
    folder: Path

    @classmethod
    def create(cls, parent: Path, python: str = sys.executable) -> Environment:
        """Make an environment and its working directory below a folder."""
        made = cls(parent / "venv", parent / "elsewhere")
        made.folder.mkdir(parents=True)
        subprocess.run([python, "-m", "venv", made.path], check=True)
        return made

    def pip(self, *words: str | Path) -> float:
        return self.run("python", "-m", "pip", "--disable-pip-version-check", *words)[1]

    def run(
        self, program: str, *words: str | Path, expected: int = 0, timeout: float = 3600
    ) -> tuple[str, float]:
        """Run a program of the environment; return its output and its seconds."""
        command = [str(self.path / "bin" / program), *map(str, words)]
        begin = time.monotonic()
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if ended.returncode != expected:
            output = (ended.stdout + ended.stderr)[-3000:]
            raise CommandFailedError(
                f"{program} {' '.join(map(str, words))}: exit {ended.returncode}\n{output}"
            )
        return ended.stdout + ended.stderr, time.monotonic() - begin

    def variables(self) -> dict[str, str]:
        """Return this process's variables; none leads to a checkout, and wheels are repeatable."""
        unwanted = re.compile(r"PYTHON|VIRTUAL_ENV|CMFL_")
        kept = {name: value for name, value in os.environ.items() if not unwanted.match(name)}
        path = f"{self.path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return kept | {"PATH": path, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}

    def version(self, distribution: str) -> str:
        script = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
        return self.run("python", "-c", script, distribution)[0].strip()

    def bytes(self) -> int:
        return sum(path.lstat().st_size for path in self.path.rglob("*") if path.is_file())


def build(folder: Path, python: str = sys.executable) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel out of it; check both with twine."""
    tools = Environment.create(folder / "tools", python)
    tools.pip("install", "--quiet", "--constraint", CONSTRAINTS, "build", "setuptools", "twine")
    copy = folder / "source"
    copy_tracked(ROOT, copy)
    tools.run("python", "-m", "build", "--no-isolation", "--outdir", folder, copy)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    tools.run("python", "-m", "twine", "check", "--strict", source, wheel)
    require_absolute_links(wheel)
    shutil.rmtree(tools.path)
    return source, wheel


def require_absolute_links(wheel: Path) -> None:
    """Refuse a wheel whose long description has a link that an index cannot follow."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        description = archive.read(name).decode().partition("\n\n")[2]
    if relative := relative_links(description):
        raise CommandFailedError(f"{wheel.name}: the long description links to {relative}")


def relative_links(description: str) -> list[str]:
    """Return the targets of Markdown and HTML links that are neither absolute nor an anchor."""
    link = r"""(?:\]\(|\b(?:href|src)=["']?|^\[[^\]]+\]: *)([^)\s"'>]+)"""
    targets = re.findall(link, description, re.MULTILINE)
    return [target for target in targets if not re.match(r"[a-z]+:|#", target)]


def git(*words: str, checkout: Path = ROOT) -> str:
    """Return what git prints in a checkout."""
    command = ["git", "-C", str(checkout), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def copy_tracked(checkout: Path, target: Path) -> None:
    """Copy the files that git tracks in a checkout, as they are there now, into a new folder.

    What else lies there stays behind: setuptools packs whatever an earlier build left in build/lib.
    """
    for name in filter(None, git("ls-files", "-z", checkout=checkout).split("\0")):
        if (checkout / name).is_file():
            copied = target / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / name, copied)


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{c:{w}}" for c, w in zip(r, widths, strict=True)) for r in rows)
    return "\n".join(line.rstrip() for line in lines)
