"""What runs came to, as a home's files claim it, or as a service tells it.

A service has of a run what its chain and blobs hold, and what the run's own files claim of accuracy
and attackers where they lie in the home that it serves. What it cannot know is None, and said.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

from cli.console import command_line
from cli.history import require_no_node
from cli.remote import chain_at
from ledger.io.home import RUN_NAME, Home
from ledger.protocol.errors import ConfigurationError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api.client.service import Service
    from api.schemas.deployments import DeploymentSummary
    from api.schemas.series import SeriesAnswer
    from cli.remote import RemoteService
    from cli.target import Target
    from ledger.io.home import RunPaths
    from ledger.protocol.documents.run import RunDocument
    from ledger.protocol.types import Digest

MOST_RUNS = 1_024
"""That a service is asked about."""


class RunSummaries(Protocol):
    """Runs of one place, by their names."""

    @property
    def place(self) -> str:
        """Where they are, for people."""

    def names(self) -> list[str]:
        """Return their names, in order."""

    def row(self, name: str) -> dict[str, Any]:
        """Return what one came to; configuration and heads are 0x-hex."""

    def settings(self, name: str) -> dict[str, str]:
        """Return all settings of one by their names, `section.key`, as JSON."""

    def unknown(self, name: str) -> str:
        """Return in words what of one cannot be known here; empty if nothing."""

    def audit_of(self, name: str) -> str:
        """Return the command that proves what one has decided."""


@contextmanager
def open_run_summaries(where: Target) -> Iterator[RunSummaries]:
    """Open what is told of the runs of a home, or of a service.

    Args:
        where: the command's options.

    Yields:
        It, while the service is open.

    Raises:
        ConfigurationError: it cannot be told which chain is meant, or both a node and a service
            are named.
    """
    if where.remote is None:
        yield HomeRuns(where.home)
        return
    require_no_node(where)
    with where.remote.service() as service:
        yield ServiceRuns(where.remote, service, chain_at(service, where.chain_id))


class HomeRuns:
    """Runs of a home, from their own files."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.place = str(home)

    def names(self) -> list[str]:
        """Return the runs of the home.

        Raises:
            ConfigurationError: there is no such home, or no run in it.
        """
        runs = Home(self._home).runs
        found = [path.name for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
        names = sorted(name for name in found if RUN_NAME.fullmatch(name))
        if not names:
            raise ConfigurationError(f"there is no run in {self._home}: make one by cmfl run")
        return names

    def paths(self, name: str) -> RunPaths:
        """Return a run that is there.

        Args:
            name: of the run.

        Raises:
            ConfigurationError: names the runs that are.
        """
        paths = Home(self._home).run(name)
        if not paths.path.is_dir():
            raise ConfigurationError(
                f"there is no run {name!r} in {self._home}; there are {', '.join(self.names())}"
            )
        return paths

    def row(self, name: str) -> dict[str, Any]:
        """Return what a run came to.

        Raises:
            CmflError: one of its files is damaged.
            OSError: one of them cannot be read.
        """
        from ledger.chain.contract.manifest import settings_digest, was_in_memory
        from ledger.claims import claimed_run

        paths = self.paths(name)
        claimed = claimed_run(paths)
        planned = self.settings(name).get("protocol.rounds", "")
        return {
            "run": name,
            "ledger": "memory" if not paths.manifest.exists() and was_in_memory(paths) else "chain",
            "rounds": claimed.rounds,
            "of": int(planned) if planned.isdecimal() else None,
            "accuracy": claimed.accuracy,
            "floor": claimed.floor,
            "accepted_attackers": claimed.accepted_attackers,
            "head": claimed.head,
            "configuration": settings_digest(paths),
        }

    def settings(self, name: str) -> dict[str, str]:
        """Return all settings of a run.

        Raises:
            ConfigurationError: its file cannot be read, or is no TOML.
        """
        from ledger.claims import recorded_settings

        return recorded_settings(self.paths(name))

    def unknown(self, name: str) -> str:  # noqa: ARG002 - as a service is asked
        """Return nothing: what a run has noted is here."""
        return ""

    def audit_of(self, name: str) -> str:
        """Return the command that proves what a run has decided."""
        return command_line("audit", "--home", self._home, "--run", name)


class ServiceRuns:
    """Runs on a chain, as a service tells of them.

    Args:
        afar: the service.
        service: the same, opened.
        chain: its name there.
    """

    def __init__(self, remote: RemoteService, service: Service, chain: str) -> None:
        self._afar, self._service, self._chain = remote, service, chain
        self._served: tuple[DeploymentSummary, ...] | None = None
        self._series: dict[str, SeriesAnswer] = {}
        self.place = service.connection.shown_url

    def names(self) -> list[str]:
        """Return the runs on the chain.

        Raises:
            ServiceError: there is no answer, or there are too many.
        """
        return sorted(one.run for one in self._all())

    def row(self, name: str) -> dict[str, Any]:
        """Return what a run came to; the digest of its settings' file no service knows.

        Raises:
            ServiceError: there is no answer.
        """
        one = self._one(name)
        told = self._service.deployment(self._chain, one.address).whole()
        series = self._series_of(name)
        claimed = series.claimed
        return {
            "run": name,
            "ledger": "chain",
            "rounds": ended_rounds(series),
            "of": one.rounds,
            "accuracy": None if claimed is None else _last(claimed.accuracy),
            "floor": None if claimed is None else _last(claimed.floor),
            "accepted_attackers": accepted_attackers(series),
            "head": told.state.head,
            "configuration": None,
        }

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings in the document whose digest the contract holds.

        Raises:
            ServiceError: there is no answer.
            BlobError: the document cannot be had.
            EncodingError: it is none.
        """
        from ledger.claims import settings_by_name
        from ledger.protocol import canonical
        from ledger.protocol.documents.run import decode_run
        from ledger.protocol.types import Digest

        digest: Digest = Digest(bytes.fromhex(self._one(name).config[2:]))
        document = decode_run(self._afar.blobs().get(digest, canonical.MAX_DOCUMENT_BYTES))
        return settings_by_name(sections_of(document))

    def unknown(self, name: str) -> str:
        """Return in words what the service cannot know of a run, or does not tell."""
        series = self._series_of(name)
        if series.claims == "absent":
            return f"{name}: the run's own files are not where the service runs: no accuracy"
        if series.claims == "unreadable":
            return f"{name}: the service cannot read the run's own files: no accuracy"
        if is_sparse(series):
            return (
                f"{name}: the service tells every so many-th of {series.round[-1]} rounds, so the "
                f"share of accepted attackers is not known"
            )
        return ""

    def audit_of(self, name: str) -> str:
        """Return the command that proves what a run has decided."""
        words = ("--rpc-url", "URL", "--chain-id", self._chain.partition("-")[0])
        address = self._one(name).address
        return command_line("audit", "--api", self.place, *words, "--address", address)

    def _one(self, name: str) -> DeploymentSummary:
        """Return the deployment of a run.

        Raises:
            ConfigurationError: there is none of this name, or more than one.
        """
        found = [one for one in self._all() if one.run == name]
        if len(found) != 1:
            there = "no run" if not found else "more than one run"
            raise ConfigurationError(
                f"{self.place} serves {there} {name!r}; it serves {', '.join(self.names())}"
            )
        return found[0]

    def _all(self) -> tuple[DeploymentSummary, ...]:
        if self._served is None:
            served = self._service.deployments(self._chain).deployments
            if len(served) > MOST_RUNS:
                raise ServiceError(f"{self.place}: serves {len(served)} runs, over {MOST_RUNS}")
            if not served:
                raise ConfigurationError(f"{self.place} serves no run")
            self._served = served
        return self._served

    def _series_of(self, name: str) -> SeriesAnswer:
        if name not in self._series:
            deployment = self._service.deployment(self._chain, self._one(name).address)
            self._series[name] = deployment.series()
        return self._series[name]


def ended_rounds(series: SeriesAnswer) -> int:
    """Return how many rounds of a run have ended.

    Args:
        series: of the run; its last round is the newest.
    """
    if not series.round:
        return 0
    return series.round[-1] - (series.status[-1] == "open")


def is_sparse(series: SeriesAnswer) -> bool:
    """Say whether rounds are left out of a series.

    Args:
        series: of a run.
    """
    return bool(series.round) and len(series.round) < series.round[-1]


def accepted_attackers(series: SeriesAnswer) -> float | None:
    """Return which share of all accepted updates attackers sent; None where it is not known.

    Args:
        series: of a run.
    """
    if series.claimed is None or is_sparse(series):
        return None
    pairs = zip(series.accepted, series.claimed.malicious_accepted, strict=True)
    noted = [(accepted or 0, sent) for accepted, sent in pairs if sent is not None]
    accepted = sum(one for one, _ in noted)
    return sum(sent for _, sent in noted) / accepted if accepted else None


def sections_of(document: RunDocument) -> dict[str, Any]:
    """Return a run's document as sections of settings, named as in its own file where both have it.

    Args:
        document: of the run.
    """
    parameters = document.parameters
    protocol = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    return {**document.experiment, "protocol": protocol}


def _last(values: tuple[float | None, ...]) -> float | None:
    """Return the last of some values that is there."""
    return next((value for value in reversed(values) if value is not None), None)
