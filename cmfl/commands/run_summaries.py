"""Run summaries, from a home directory or from a service.

A service knows of a run what its chain and blobs hold, and what the run's own files claim of
accuracy and attackers if they are in the home that it serves. Unknown values are None.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import TypedDict

from cmfl.access.history import require_no_node
from cmfl.access.remote import chain_at
from cmfl.commands.console import command_line
from ledger.io.home import RUN_NAME, Home
from ledger.protocol.errors import ConfigurationError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.client.service import Service
    from cmfl.access.remote import RemoteService
    from cmfl.access.target import Target
    from ledger.history.responses.deployments import DeploymentSummary
    from ledger.history.responses.series import Series
    from ledger.io.home import RunPaths
    from ledger.protocol.documents.run import RunDocument

MAX_RUNS = 1_024
"""That a service may serve."""


class RunSummary(TypedDict):
    """One run in numbers, as `cmfl runs --json` prints it; configuration and head are 0x-hex.

    Rounds and head are the chain's; `unread` is None, or the reason why they are unknown.
    """

    run: str
    ledger: str | None
    rounds: int | None
    of: int | None
    accuracy: float | None
    floor: float | None
    accepted_attackers: float | None
    head: str | None
    configuration: str | None
    unread: str | None


class RunSummaries(Protocol):
    """Runs of one home or service, by their names."""

    @property
    def place(self) -> str:
        """The home's folder or the service's URL."""

    def names(self) -> list[str]:
        """Return their names, in order."""

    def row(self, name: str) -> RunSummary:
        """Return one run in numbers."""

    def settings(self, name: str) -> dict[str, str]:
        """Return all settings of one run by their names, `section.key`, as JSON."""

    def unknown(self, name: str) -> str:
        """Return in words why values of one run are unknown; empty if none are."""

    def audit_of(self, name: str) -> str:
        """Return the command that audits one run."""


@contextmanager
def open_run_summaries(target: Target) -> Iterator[RunSummaries]:
    """Open the runs of the home or the service that a command's options name.

    Raises:
        ConfigurationError: the chain is ambiguous, or both a node and a service are named.
    """
    if target.remote is None:
        yield HomeRuns(target)
        return
    require_no_node(target)
    with target.remote.service() as service:
        yield ServiceRuns(target.remote, service, chain_at(service, target.chain_id))


class HomeRuns:
    """Runs of a home, from its chain or a node and from their own files."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._home = target.home
        self.place = str(target.home)

    def names(self) -> list[str]:
        """Return the names of the runs.

        Raises:
            ConfigurationError: there is no such home, or no run in it.
        """
        runs = Home(self._home).runs
        folders = [path.name for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
        names = sorted(name for name in folders if RUN_NAME.fullmatch(name))
        if not names:
            raise ConfigurationError(f"there is no run in {self._home}: make one by cmfl run")
        return names

    def row(self, name: str) -> RunSummary:
        """Return one run in numbers.

        Raises:
            CmflError: one of its files is damaged, or its chain is damaged or unreachable.
            OSError: one of its files cannot be read.
        """
        from ledger.chain.contract.manifest import settings_digest, was_in_memory
        from ledger.claims import claimed_run

        paths = self._paths(name)
        claimed = claimed_run(paths)
        planned = self.settings(name).get("protocol.rounds", "")
        is_memory = not paths.manifest.exists() and was_in_memory(paths)
        rounds, head, unread = (
            (claimed.rounds, claimed.head, None) if is_memory else self._on_chain(paths)
        )
        return {
            "run": name,
            "ledger": "memory" if is_memory else "chain",
            "rounds": rounds,
            "of": int(planned) if planned.isdecimal() else None,
            "accuracy": claimed.accuracy,
            "floor": claimed.floor,
            "accepted_attackers": claimed.accepted_attackers,
            "head": head,
            "configuration": settings_digest(paths),
            "unread": unread,
        }

    def _on_chain(self, paths: RunPaths) -> tuple[int | None, str | None, str | None]:
        """Return ended rounds and head by the contract, or the reason why they are unknown."""
        from ledger.chain.contract.manifest import read_run_manifest, require_unplayed
        from ledger.chain.round_ledger import last_ended

        if not paths.manifest.exists():
            require_unplayed(paths)
            return 0, None, None
        manifest = read_run_manifest(paths)
        with self._target.ledger_of(manifest) as ledger:
            if ledger is None:
                reason = f"{paths.name} is on chain {manifest.chain_id}: name its node by --rpc-url"
                return None, None, reason
            state = ledger.state()
            return last_ended(state), f"0x{state.head.hex()}", None

    def settings(self, name: str) -> dict[str, str]:
        """Return all settings of one run.

        Raises:
            ConfigurationError: its file cannot be read, or is no TOML.
        """
        from ledger.claims import recorded_settings

        return recorded_settings(self._paths(name))

    def unknown(self, name: str) -> str:  # noqa: ARG002 - the port's signature
        """Return nothing: a home has all files of its runs."""
        return ""

    def audit_of(self, name: str) -> str:
        """Return the command that audits one run."""
        return command_line("audit", "--home", self._home, "--run", name)

    def _paths(self, name: str) -> RunPaths:
        """Return an existing run.

        Raises:
            ConfigurationError: there is none of this name; the message lists the others.
        """
        paths = Home(self._home).run(name)
        if not paths.path.is_dir():
            raise ConfigurationError(
                f"there is no run {name!r} in {self._home}; there are {', '.join(self.names())}"
            )
        return paths


class ServiceRuns:
    """Runs on a chain of a service.

    Args:
        remote: the service.
        service: the same, opened.
        chain: its name there.
    """

    def __init__(self, remote: RemoteService, service: Service, chain: str) -> None:
        self._remote, self._service, self._chain = remote, service, chain
        self._deployments: list[DeploymentSummary] | None = None
        self._series: dict[str, Series] = {}
        self.place = service.connection.shown_url

    def names(self) -> list[str]:
        """Return the names of the runs on the chain.

        Raises:
            ServiceError: there is no answer, or there are too many.
        """
        return sorted(deployment["run"] for deployment in self._all())

    def row(self, name: str) -> RunSummary:
        """Return one run in numbers; a service knows no digest of its settings file.

        Raises:
            ServiceError: there is no answer.
        """
        deployment = self._deployment(name)
        details = self._service.deployment(self._chain, deployment["address"]).details()
        series = self._series_of(name)
        claimed = series["claimed"]
        return {
            "run": name,
            "ledger": "chain",
            "rounds": ended_rounds(series),
            "of": deployment["rounds"],
            "accuracy": None if claimed is None else _last(claimed["accuracy"]),
            "floor": None if claimed is None else _last(claimed["floor"]),
            "accepted_attackers": accepted_attackers(series),
            "head": details["state"]["head"],
            "configuration": None,
            "unread": None,
        }

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings in the document whose digest the contract holds.

        Raises:
            ServiceError: there is no answer.
            BlobError: the document is not available.
            EncodingError: the blob is no such document.
        """
        from ledger.claims import settings_by_name
        from ledger.protocol import canonical
        from ledger.protocol.documents.run import decode_run
        from ledger.protocol.types import Digest

        digest = Digest(bytes.fromhex(self._deployment(name)["config"][2:]))
        document = decode_run(self._remote.blobs().get(digest, canonical.MAX_DOCUMENT_BYTES))
        return settings_by_name(sections_of(document))

    def unknown(self, name: str) -> str:
        """Return in words why values of one run are unknown; empty if none are."""
        series = self._series_of(name)
        if series["claims"] == "absent":
            return f"{name}: the run's own files are not where the service runs: no accuracy"
        if series["claims"] == "unreadable":
            return f"{name}: the service cannot read the run's own files: no accuracy"
        if is_sparse(series):
            return (
                f"{name}: the service shows only some of {series['round'][-1]} rounds, so the "
                f"share of accepted attackers is unknown"
            )
        return ""

    def audit_of(self, name: str) -> str:
        """Return the command that audits one run."""
        chain_id = self._chain.partition("-")[0]
        node = ("--rpc-url", "URL", "--chain-id", chain_id)
        address = self._deployment(name)["address"]
        return command_line("audit", "--api", self.place, *node, "--address", address)

    def _deployment(self, name: str) -> DeploymentSummary:
        """Return the deployment of a run.

        Raises:
            ConfigurationError: there is none of this name, or more than one.
        """
        named = [deployment for deployment in self._all() if deployment["run"] == name]
        if len(named) != 1:
            there = "no run" if not named else "more than one run"
            raise ConfigurationError(
                f"{self.place} serves {there} {name!r}; it serves {', '.join(self.names())}"
            )
        return named[0]

    def _all(self) -> list[DeploymentSummary]:
        if self._deployments is None:
            deployments = self._service.deployments(self._chain)["deployments"]
            count = len(deployments)
            if count > MAX_RUNS:
                raise ServiceError(f"{self.place}: serves {count} runs, over {MAX_RUNS}")
            if not deployments:
                raise ConfigurationError(f"{self.place} serves no run")
            self._deployments = deployments
        return self._deployments

    def _series_of(self, name: str) -> Series:
        if name not in self._series:
            address = self._deployment(name)["address"]
            self._series[name] = self._service.deployment(self._chain, address).series()
        return self._series[name]


def ended_rounds(series: Series) -> int:
    """Return the number of ended rounds of a run; the last round of a series is the newest."""
    if not series["round"]:
        return 0
    return series["round"][-1] - (series["status"][-1] == "open")


def is_sparse(series: Series) -> bool:
    """Return whether a series leaves rounds out."""
    numbers = series["round"]
    return bool(numbers) and len(numbers) < numbers[-1]


def accepted_attackers(series: Series) -> float | None:
    """Return the share of attackers' updates among the accepted ones; None where it is unknown."""
    if series["claimed"] is None or is_sparse(series):
        return None
    pairs = zip(series["accepted"], series["claimed"]["malicious_accepted"], strict=True)
    counts = [(accepted or 0, malicious) for accepted, malicious in pairs if malicious is not None]
    total = sum(accepted for accepted, _ in counts)
    return sum(malicious for _, malicious in counts) / total if total else None


def sections_of(document: RunDocument) -> dict[str, Any]:
    """Return a run's document as sections of settings, named as in the run's own file."""
    parameters = document.parameters
    protocol = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    return {**document.experiment, "protocol": protocol}


def _last(values: Sequence[float | None]) -> float | None:
    """Return the last value that is not None."""
    return next((value for value in reversed(values) if value is not None), None)
