"""Rules for the folder of a base, before transformers reads it.

transformers lets the folder's own files name what else is loaded: attention kernels, which are code
from a network, and files of weights, which may be pickles or lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from ledger.io.home import read_file
from ledger.io.parsing import parse_json
from ledger.protocol.errors import ConfigurationError

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
MAX_FILE_BYTES = 1 << 26
_READ = (CONFIG, "generation_config.json", INDEX)
_ADAPTERS = "adapter_config.json"
_IMPLEMENTATIONS = (None, "eager", "sdpa", "grouped_mm", "batched_mm")
_REFUSED = ("transformers_weights", "quantization_config")


def require_plain_base(subject: str, folder: Path) -> None:
    """Reject a folder that names code, pickles, or files elsewhere."""
    if (folder / _ADAPTERS).exists():
        raise ConfigurationError(f"{subject}: holds adapters, and no base")
    for name in _READ:
        if (folder / name).exists():
            where = f"{subject}: {name}"
            content = _content(where, folder / name)
            if name == INDEX:
                _require_own_files(where, content.get("weight_map"))
            else:
                _require_own_code(where, content)


def _require_own_code(where: str, content: dict[str, Any]) -> None:
    for name, value in _members(content):
        if name in _REFUSED and value is not None:
            raise ConfigurationError(f"{where}: {name}: is not supported in a base")
        if name.strip("_").startswith(("attn_implementation", "experts_implementation")):
            values = list(value.values()) if isinstance(value, dict) else [value]
            if any(chosen not in _IMPLEMENTATIONS for chosen in values):
                raise ConfigurationError(
                    f"{where}: {name} = {value!r:.80}: must be eager or sdpa; others may be code "
                    f"from a network"
                )


def _require_own_files(where: str, files: object) -> None:
    named = list(files.values()) if isinstance(files, dict) else []
    for file in named:
        is_own = isinstance(file, str) and PurePath(file).name == file
        if not is_own or not file.endswith(".safetensors"):
            raise ConfigurationError(
                f"{where}: names {file!r:.80}; must name .safetensors files of this folder alone"
            )
    if not named:
        raise ConfigurationError(f"{where}: has no weight_map that names files")


def _content(where: str, path: Path) -> dict[str, Any]:
    try:
        data = read_file(path, MAX_FILE_BYTES)
        content = parse_json(data) if len(data) <= MAX_FILE_BYTES else None
    except OSError as error:
        raise ConfigurationError(f"{where}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{where}: is not JSON: {error!s:.200}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{where}: holds no object of at most {MAX_FILE_BYTES} bytes")
    return content


def _members(content: object) -> Iterator[tuple[str, Any]]:
    """Yield each member of every object in a JSON document."""
    rest = [content]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            yield from value.items()
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
