"""The core beside other projects' packages: `python3 -m tests.packaging.beside`.

One environment gets Flower, NVIDIA FLARE, MLflow, transformers and a package of PyPI that is named
`clients`, and then our wheel with the command line, PyTorch, the service and the compiled
distances, without our pins: pip finds versions that suit all. Every command line answers, and ours
runs and audits. Then the foreign `clients` is installed after ours: it overwrites files of ours,
and `cmfl` says so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.packaging.environments import TORCH, Environment, build, table

OTHERS = ("flwr", "nvflare", "mlflow-skinny", "transformers", "clients")
SHARED = (
    "rich",
    "typer",
    "click",
    "fastapi",
    "starlette",
    "uvicorn",
    "packaging",
    "numpy",
    "pydantic",
)
COMMANDS = (
    ("flwr", "--version"),
    ("nvflare", "--version"),
    ("mlflow", "--version"),
    ("transformers", "version"),
    ("cmfl", "--version"),
    ("cmfl", "serve", "--help"),
    ("cmfl", "run", "--preset", "smoke", "--home", "home"),
    ("cmfl", "audit", "--home", "home"),
    ("cmfl", "runs", "list", "--home", "home"),
)
FOREIGN = "clients"
REINSTALL = ("install", "--force-reinstall", "--no-deps")


def main() -> int:
    """Install, ask all command lines, and let the foreign package overwrite ours."""
    with tempfile.TemporaryDirectory(prefix="cmfl-beside-") as folder:
        _, wheel = build(Path(folder))
        _beside(Environment.create(Path(folder) / "shared"), wheel)
    return 0


def _beside(environment: Environment, wheel: Path) -> None:
    _install(environment, "PyTorch", TORCH)
    _install(environment, "the others", *OTHERS)
    _install(environment, "ours", f"{wheel}[cli,clients,api,fast]")
    environment.run("python", "-m", "pip", "check")
    _report("pip check: no broken requirements")
    versions = [[name, environment.version(name)] for name in (*OTHERS, *SHARED, "cmfl-ledger")]
    _report(table([["package", "version"], *versions]))
    _answers(environment)
    _overwritten(environment, wheel)


def _install(environment: Environment, name: str, *requirements: str) -> None:
    before = environment.bytes()
    seconds = environment.pip("install", "--quiet", *requirements)
    _report(f"{name}: {seconds:.0f} s, {(environment.bytes() - before) / 1e6:.0f} MB")


def _answers(environment: Environment) -> None:
    """Ask each command line one thing; print the first line of its answer."""
    for program, *words in COMMANDS:
        output, seconds = environment.run(program, *words)
        first = next(line for line in output.splitlines() if line.strip())
        _report(f"{program} {' '.join(words)} ({seconds:.1f} s): {first.strip()}")


def _overwritten(environment: Environment, wheel: Path) -> None:
    """Let the foreign package overwrite ours, and follow the remedy that `cmfl` names."""
    environment.pip(*REINSTALL, "--quiet", FOREIGN)
    refusal, _ = environment.run("cmfl", "--version", expected=2)
    _report(f"{FOREIGN} installed after ours: {refusal.strip()}")
    environment.pip("uninstall", "--quiet", "--yes", FOREIGN)
    environment.pip(*REINSTALL, "--quiet", wheel)
    answer, _ = environment.run("cmfl", "--version")
    _report(f"after the remedy: {answer.splitlines()[0]}")


def _report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
