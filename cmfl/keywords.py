"""Types of settings as keywords, written by `python -m tests.cmfl.typed_settings`."""

from collections.abc import Callable, Mapping
from typing import Literal, TypedDict


class RunKeywords(TypedDict, total=False):
    """Sections, and settings by names that only one setting has; None takes a value back."""

    protocol: Mapping[str, object]
    training: Mapping[str, object]
    malice: Mapping[str, object]
    evaluation: Mapping[str, object]
    early_stop: Mapping[str, object]
    machine: Mapping[str, object]
    track: Mapping[str, object]
    seed: int | None
    clients: int | None
    active_rate: float | None
    committee_rate: float | None
    aggregation_rate: float | None
    rounds: int | None
    strategy: int | None
    distance: str | Callable[..., object] | None
    quorum: Literal["paper", "bft"] | None
    server_rate: float | None
    beacon: Literal["none", "block"] | None
    commit_blocks: int | None
    deadline_blocks: int | None
    view_seconds: int | None
    payload: str | None
    partition: Mapping[str, object] | None
    learning_rate: float | None
    batch_size: int | None
    local_steps: int | None
    local_epochs: int | None
    proximal: float | None
    calibrated: bool | None
    malicious_rate: float | None
    factor: float | None
    on: Literal["update", "weights"] | None
    only: Literal["members", "trainers"] | None
    members: Mapping[str, int] | None
    trainers: Mapping[str, int] | None
    every: int | None
    samples: int | None
    training_loss: bool | None
    per_client: bool | None
    metric: Literal["accuracy", "loss"] | None
    target: float | None
    patience: int | None
    min_delta: float | None
    device: str | None
    workers: int | None
    ledger: Literal["chain", "memory"] | None
    engine: Literal["local", "ray", "flower"] | None
    ray_address: str | None
    isa: Literal["default", "avx2", "avx512"] | None
    keep: Literal["all", "accepted"] | int | None
    mlflow: str | None
    tensorboard: str | None
    wandb: str | None
    project: str | None
    link: str | None
    audit: bool | None
