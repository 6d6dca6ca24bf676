"""Optional packages, and the extras of `cmfl-ledger` that install them."""

from __future__ import annotations

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "torch": "clients",
    "sklearn": "clients",
    "safetensors": "clients",
    "tomli_w": "clients",
    "llvmlite": "fast",
    "pyarrow": "data",
    "PIL": "data",
    "huggingface_hub": "fetch",
    "ray": "ray",
    "matplotlib": "plots",
    "transformers": "transformers",
    "peft": "transformers",
    "tokenizers": "transformers",
    "anyio": "api",
    "fastapi": "api",
    "starlette": "api",
    "uvicorn": "api",
    "sse_starlette": "api",
    "prometheus_client": "api",
    "structlog": "api",
    "limits": "api",
    "sqlalchemy": "api",
    "psycopg": "postgresql",
    "mlflow": "mlflow",
    "alembic": "mlflow",
    "tensorboardX": "tensorboard",
    "wandb": "wandb",
    "fsspec": "remote",
    "s3fs": "remote",
    "cryptography": "provenance",
    "model_signing": "provenance",
    "securesystemslib": "provenance",
}
"""The extra that installs an optional module; `pyproject.toml` lists the same packages."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra of the published package."""
    return f"pip install 'cmfl-ledger[{extra}]'"


def missing_extra(error: BaseException) -> str | None:
    """Return the extra whose absence caused an import to fail; None if something else did."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    return EXTRAS.get(error.name.partition(".")[0])
