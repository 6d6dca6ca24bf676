"""Optional packages, and the extras of `cmfl-ledger` that install them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "cmfl-ledger"
_MODULES = {
    "cli": "typer rich",
    "clients": "torch scipy sklearn safetensors tomli_w",
    "fast": "llvmlite",
    "data": "pyarrow PIL",
    "fetch": "huggingface_hub",
    "ray": "ray",
    "plots": "matplotlib",
    "transformers": "transformers peft tokenizers",
    "api": "anyio fastapi starlette uvicorn sse_starlette prometheus_client structlog limits",
    "mlflow": "mlflow alembic",
    "tensorboard": "tensorboardX",
    "wandb": "wandb",
    "remote": "fsspec s3fs",
    "anchors": "rfc3161_client",
    "provenance": "cryptography model_signing securesystemslib",
}
# The extra that installs an optional module; `pyproject.toml` lists the same packages.
EXTRAS = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this checkout or wheel, or else its packages."""
    from importlib.metadata import distributions  # noqa: PLC0415 - slow to load, rarely needed

    found = [*distributions(name=NAME)]
    source = next(filter(None, map(_source, found)), None)
    if source is not None:
        option, path = source
        return shlex.join(["pip", "install", *option, f"{path}[{extra}]"])
    here = [f"{Path(__file__).parents[2]}[{extra}]"]  # where the code runs without an installation
    packages = next(filter(None, (_packages(one.requires or (), extra) for one in found)), here)
    missing = [
        package
        for package in packages
        if not any(distributions(name=re.split(r"[^\w.-]", package, maxsplit=1)[0]))
    ]
    return shlex.join(["pip", "install", *(missing or packages)])


def _source(distribution: Distribution) -> tuple[list[str], Path] | None:
    """Return the checkout or wheel of an installation, with pip's option; None if it is gone."""
    direct = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = urlsplit(direct.get("url", ""))
    path = Path(unquote(url.path))
    if url.scheme != "file" or not path.exists():
        return None
    return ["-e"] if direct.get("dir_info", {}).get("editable") else [], path


def _packages(requirements: Iterable[str], extra: str) -> list[str]:
    found: list[str] = []
    for line in requirements:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        if not re.search(rf"""extra == ['"]{extra}['"]""", marker):
            continue
        inner = re.fullmatch(rf"{NAME}\[(.*)\]", requirement)
        names = inner[1].split(",") if inner else []
        found += [one for name in names for one in _packages(requirements, name)]
        found += [] if inner else [requirement]
    return [*dict.fromkeys(found)]


def require_extra(extra: str, purpose: str) -> None:
    """Reject a purpose whose extra is missing, before any work is done for it."""
    if any(name == extra and find_spec(module) is None for module, name in EXTRAS.items()):
        raise ConfigurationError(f"{purpose} the extra [{extra}]: {install_command(extra)}")


def missing_extra(error: BaseException) -> str | None:
    """Return a sentence with the extra that a failed import needs; None for another error."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    extra = EXTRAS.get(error.name.partition(".")[0])
    return extra and f"this needs the extra [{extra}]: {install_command(extra)}"
