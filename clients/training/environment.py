"""The environment class of this process: what the bytes of an update follow from, beside inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from clients.devices import (
    SET_LATE,
    InstructionSet,
    card_gib,
    device_named,
    instruction_set_here,
    processor_kind,
)
from clients.training.port import TrainingPath
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.training_replay import MAX_ENVIRONMENT_TEXT, TrainingEnvironment

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration

_ELSEWHERE = {"ray": "unknown: actors of a cluster", "flower": "unknown: SuperNodes of Flower"}
_CARDS_ELSEWHERE = "unknown: cards of a cluster"


def environment_of(configuration: Configuration) -> TrainingEnvironment:
    """Return the class of updates that an engine of this process trains for a run.

    Of a cluster's actors and of Flower's nodes it is unknown, and equal to that of no repetition.
    """
    machine = configuration.machine
    if trains_on_cluster_cards(configuration):
        raise ConfigurationError(
            f"machine.device = {machine.device} with machine.engine = {machine.engine}: which "
            f"cards train is not known in this process, so their environment cannot be stated"
        )
    here = environment_here(settled_path(configuration), machine.device, machine.isa)
    return replace(here, isa=_ELSEWHERE.get(machine.engine, here.isa))


def environment_of_run(configuration: Configuration) -> TrainingEnvironment:
    """Return the class that a simulation records; of a cluster's cards it is unknown, too."""
    if not trains_on_cluster_cards(configuration):
        return environment_of(configuration)
    here = environment_here(settled_path(configuration), "cpu")
    isa = _ELSEWHERE[configuration.machine.engine]
    return replace(here, isa=isa, device=_CARDS_ELSEWHERE)


def trains_on_cluster_cards(configuration: Configuration) -> bool:
    """Return whether other machines' cards may train: their kind is not known in this process."""
    return configuration.machine.trains_elsewhere and configuration.machine.device != "cpu"


def environment_here(
    path: TrainingPath, device: str, cap: InstructionSet | None = None
) -> TrainingEnvironment:
    """Return the class of updates that an engine of this process trains.

    Args:
        cap: that the engine is opened with, which refuses processes that do not compute under it.
    """
    return TrainingEnvironment(
        torch=str(torch.__version__),
        path=path,
        processor=processor_kind(),
        isa=cap or isa_in_force(),
        device=_device_kind(device_named(device)),
        threads=1,  # devices.reproducible: whatever the machine has
    )


def isa_in_force() -> str:
    """Return the instruction set with which torch computes in this process."""
    return instruction_set_here(torch.backends.cpu.get_cpu_capability())


def require_known(environment: TrainingEnvironment) -> None:
    """Refuse to compare updates with those of an environment of which nobody knows the class."""
    if environment.isa.endswith(SET_LATE):
        raise ConfigurationError(
            "variables that choose torch's kernels were set after this process had started, so "
            "that nothing says which are in force: set them before, or set machine.isa instead"
        )


def settled_path(configuration: Configuration) -> TrainingPath:
    """Return the training path of a run document."""
    path = configuration.training.path
    if path == "auto":
        raise ConfigurationError("the run document leaves training.path open: nothing says how")
    return path


def _device_kind(device: torch.device) -> str:
    """Return the kind of a device: the processor, or a GPU with what computes on it."""
    if device.type == "cpu":
        return "cpu"
    major, minor = torch.cuda.get_device_capability(device)
    # The memory decides on the size of the chunks, and so on the last digits.
    versions = f"sm_{major}{minor}, {card_gib(device)} GiB, CUDA {torch.version.cuda}"
    versions += f", cuDNN {torch.backends.cudnn.version()}"
    name = torch.cuda.get_device_name(device)[: MAX_ENVIRONMENT_TEXT - len(versions) - 2]
    return f"{name}, {versions}"
