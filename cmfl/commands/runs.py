"""`cmfl runs`: summaries of the runs of a home or a service, one by one.

Rounds and head are read from the chain. Accuracy and accepted attackers are claims of the runs' own
files. `cmfl runs show` compares the claimed head of a run with the chain.

A service knows what chain and blobs hold, and what the files in its home claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer import Argument

from api.schemas import DeploymentSummary
from cmfl.commands import FAILED, WRONG, console, options
from cmfl.commands.groups import Commands
from cmfl.recorded import names_in
from cmfl.where import HOME, RemoteService, Target, chain_at, require_no_node
from ledger.chain.contract.ledger import (
    read_run_manifest,
    require_unplayed,
    settings_digest,
    was_in_memory,
)
from ledger.chain.round_ledger import last_ended
from ledger.claims import (
    claimed_run,
    claimed_stop,
    is_below_floor,
    last_known,
    recorded_settings,
    settings_by_name,
)
from ledger.history.answers_rounds import SeriesAnswer
from ledger.io.home import Home, RunPaths
from ledger.protocol import canonical
from ledger.protocol.documents.run import decode_run
from ledger.protocol.errors import CmflError, ConfigurationError, ServiceError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from api.client import Service


MAX_RUNS = 1_024  # of a service

COLUMNS = (
    *("run", "ledger", "rounds", "of", "accuracy", "floor", "accepted_attackers"),
    *("head", "configuration", "unread"),
)
"""Of a summary, as `cmfl runs --json` prints it; configuration and head are 0x-hex.

Unknown values are None. `unread` is the reason why the chain's rounds and head are unknown.
"""

RunSummary: TypeAlias = dict[str, Any]


def summary(name: str, **known: object) -> RunSummary:
    """Return what is known of a run, with None for all else."""
    return {**dict.fromkeys(COLUMNS), "run": name, **known}


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """A home, and a node whose chain has some of its runs, or a service."""

    home: options.HomeFolder = HOME
    rpc_url: options.RpcUrl = None
    chain_id: options.ChainId = None
    api: options.Api = None
    api_token_file: options.ApiTokenFile = None

    def target(self, run: str | None = None) -> Target:
        """Return where the runs are, or one of them."""
        remote = RemoteService.of(self.api, self.api_token_file)
        return Target(self.home, run, rpc_url=self.rpc_url, chain_id=self.chain_id, remote=remote)


@contextmanager
def open_run_summaries(target: Target) -> Iterator[HomeRuns | ServiceRuns]:
    """Open the summaries of the home's runs, or of the service's."""
    if target.remote is None:
        yield HomeRuns(target)
        return
    require_no_node(target)
    with target.remote.service() as service:
        yield ServiceRuns(target.remote, service, chain_at(service, target.chain_id))


class HomeRuns:
    """Runs of a home, by their names; what they claim of themselves is in their folders."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.place = str(target.home)

    def names(self) -> list[str]:
        """Return the names of all runs, sorted."""
        return names_in(self._target.home)

    def row(self, name: str) -> RunSummary:
        """Return the summary of a run."""
        paths = self._paths(name)
        claimed = claimed_run(paths)
        planned = self.settings(name).get("protocol.rounds", "")
        is_memory = not paths.manifest.exists() and was_in_memory(paths)
        known: dict[str, object] = {"rounds": claimed.rounds, "head": claimed.head}
        if not is_memory:
            known = self._on_chain(paths)
        return summary(
            name,
            ledger="memory" if is_memory else "chain",
            of=int(planned) if planned.isdecimal() else None,
            accuracy=claimed.accuracy,
            floor=claimed.floor,
            accepted_attackers=claimed.accepted_attackers,
            configuration=settings_digest(paths),
            **known,
        )

    def _on_chain(self, paths: RunPaths) -> dict[str, object]:
        if not paths.manifest.exists():
            require_unplayed(paths)
            return {"rounds": 0}
        manifest = read_run_manifest(paths)
        with self._target.ledger_of(manifest) as ledger:
            if ledger is None:
                where = f"chain {manifest.chain_id}: name its node by --rpc-url"
                return {"unread": f"{paths.name} is on {where}"}
            state = ledger.state()
            return {"rounds": last_ended(state), "head": f"0x{state.head.hex()}"}

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings by their full names, as TOML."""
        return recorded_settings(self._paths(name))

    def unknown(self, name: str) -> str:  # noqa: ARG002 - as of a service
        """Return nothing: a home knows all."""
        return ""

    def audit_of(self, name: str) -> str:
        """Return the command that audits a run."""
        return console.command_line("audit", home=self._target.home, run=name)

    def _paths(self, name: str) -> RunPaths:
        paths = Home(self._target.home).run(name)
        if not paths.path.is_dir():
            raise ConfigurationError(
                f"there is no run {name!r} in {self.place}; there are {', '.join(self.names())}"
            )
        return paths


class ServiceRuns:
    """Runs of a service, by their names; each is asked for once."""

    def __init__(self, remote: RemoteService, service: Service, chain: str) -> None:
        self._remote, self._service, self._chain = remote, service, chain
        self._known: dict[str, SeriesAnswer] = {}
        self.place = service.shown_url

    def names(self) -> list[str]:
        """Return the names of all runs, sorted."""
        return sorted(deployment["run"] for deployment in self._all)

    def row(self, name: str) -> RunSummary:
        """Return the summary of a run."""
        deployment, series = self._deployment(name), self._series(name)
        details = self._service.deployment(self._chain, deployment["address"]).details()
        claimed, numbers = series["claimed"], series["round"]
        attackers = None
        # The share is unknown if some round is.
        if claimed is not None and not _is_sparse(series):
            pairs = zip(series["accepted"], claimed["malicious_accepted"], strict=True)
            counts = [
                (accepted or 0, malicious) for accepted, malicious in pairs if malicious is not None
            ]
            total = sum(accepted for accepted, _ in counts)
            attackers = sum(malicious for _, malicious in counts) / total if total else None
        return summary(
            name,
            ledger="chain",
            rounds=numbers[-1] - (series["status"][-1] == "open") if numbers else 0,
            of=deployment["rounds"],
            accuracy=None if claimed is None else last_known(claimed["accuracy"]),
            floor=None if claimed is None else last_known(claimed["floor"]),
            accepted_attackers=attackers,
            head=details["state"]["head"],
        )

    def settings(self, name: str) -> dict[str, str]:
        """Return the settings in the run document, by their full names, as TOML."""
        digest = Digest(bytes.fromhex(self._deployment(name)["config"][2:]))
        document = decode_run(self._remote.blobs().get(digest, canonical.MAX_DOCUMENT_BYTES))
        parameters = document.parameters
        protocol = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
        return settings_by_name({**document.experiment, "protocol": protocol})

    def unknown(self, name: str) -> str:
        """Return why accuracy or attackers are unknown; nothing if they are known."""
        series = self._series(name)
        if series["claims"] == "absent":
            return f"{name}: the run's own files are not where the service runs: no accuracy"
        if series["claims"] == "unreadable":
            return f"{name}: the service cannot read the run's own files: no accuracy"
        if _is_sparse(series):
            return (
                f"{name}: the service shows only some of {series['round'][-1]} rounds, so the "
                f"share of accepted attackers is unknown"
            )
        return ""

    def audit_of(self, name: str) -> str:
        """Return the command that audits a run, with a node that the reader names."""
        chain, address = self._chain.partition("-")[0], self._deployment(name)["address"]
        on = {"rpc_url": "URL", "chain_id": chain, "address": address}
        return console.command_line("audit", api=self.place, **on)

    def _deployment(self, name: str) -> DeploymentSummary:
        named = [deployment for deployment in self._all if deployment["run"] == name]
        if len(named) != 1:
            there = "no run" if not named else "more than one run"
            raise ConfigurationError(
                f"{self.place} serves {there} {name!r}; it serves {', '.join(self.names())}"
            )
        return named[0]

    @cached_property
    def _all(self) -> list[DeploymentSummary]:
        deployments = self._service.deployments(self._chain)["deployments"]
        if len(deployments) > MAX_RUNS:
            raise ServiceError(f"{self.place}: serves {len(deployments)} runs, over {MAX_RUNS}")
        if not deployments:
            raise ConfigurationError(f"{self.place} serves no run")
        return deployments

    def _series(self, name: str) -> SeriesAnswer:
        if name not in self._known:
            address = self._deployment(name)["address"]
            self._known[name] = self._service.deployment(self._chain, address).series()
        return self._known[name]


def _is_sparse(series: SeriesAnswer) -> bool:
    numbers = series["round"]
    return bool(numbers) and len(numbers) < numbers[-1]


runs_app = Commands()

NOT_SERVED = (
    "The heads are claims of the service, too. It knows no run on the memory ledger, and no digest "
    "of a run's own settings file."
)
Name = Annotated[
    str, Argument(metavar="RUN", help="Name of the run.", autocompletion=options.runs_of_home)
]


@runs_app.command("list")
def list_runs(
    place: PlaceOptions, json: console.AsJson = False, csv: console.AsCsv = False
) -> None:
    """List the runs of a home: rounds, accuracy and its floor, accepted attackers, head.

    The floor is the accuracy of always answering the commonest class. Rounds and head are read from
    the chain, and are unknown where it is a node's that is not named. A run that cannot be read is
    named on standard error, with exit code 2, and the others are listed.
    """
    rows: list[RunSummary] = []
    faults: list[Exception] = []
    with open_run_summaries(place.target()) as runs:
        for name in runs.names():
            try:
                rows.append(runs.row(name))
            except (CmflError, OSError) as error:
                rows.append(summary(name))
                faults.append(error)
        if csv:
            console.print_csv(COLUMNS, rows)
        elif json:
            console.print_json(rows)
        else:
            _print_list(runs, rows)
    for fault in faults:
        console.complain(str(fault))
    raise typer.Exit(WRONG if faults else 0)


@runs_app.command("show")
def show(name: Name, place: PlaceOptions, json: console.AsJson = False) -> None:
    """Show one run: its summary and its settings.

    The head that its files claim is compared with the chain; a difference is reported with a
    warning and exit code 1. The claims of a service are not compared.
    """
    from cmfl.commands.audit import HeadComparison, compare_head, head_message

    target = place.target(name)
    is_remote, paths = target.remote is not None, Home(target.home).run(name)
    with open_run_summaries(target) as runs:
        row, settings = runs.row(name), runs.settings(name)
        if is_remote:
            asked = {"round": row["rounds"], "claimed": row["head"]}
            comparison = HeadComparison("not_asked", **asked)
        else:
            comparison = compare_head(target, claimed_run(paths))
        stop = None if is_remote else claimed_stop(paths)
        verdict = "" if json else _verdict(runs, row)
    if json:
        ended = {} if stop is None else {"early_stop": asdict(stop)}
        console.print_json({**row, "chain": asdict(comparison), **ended, "settings": settings})
    else:
        known = {key: value for key, value in row.items() if (key, value) != ("unread", None)}
        console.print_lines(
            f"{key.replace('_', ' '):18} {_shown(value)}".rstrip() for key, value in known.items()
        )
        console.print_line(verdict)
        if stop is not None:
            console.print_line(stop.sentence)
        if is_remote:
            console.print_prose(NOT_SERVED)
        elif row["unread"] is None and not comparison.contradicts:
            console.print_line(head_message(name, comparison))
        console.print_table("settings", ("setting", "value"), list(settings.items()))
    if comparison.contradicts:
        console.complain(f"WARNING: {head_message(name, comparison)}")
        raise typer.Exit(FAILED)


def _print_list(runs: HomeRuns | ServiceRuns, rows: list[RunSummary]) -> None:
    columns = ("run", "ledger", "rounds", "accuracy", "floor", "accepted_attackers", "head")
    shown = []
    for row in rows:
        of = "" if None in {row["rounds"], row["of"]} else f"/{row['of']}"
        rounds = row | {"rounds": f"{_shown(row['rounds'])}{of}"}
        shown.append([_shown(rounds[column]) for column in columns])
    titles = [column.replace("_", " ") for column in columns]
    console.print_table(f"runs of {runs.place}", titles, shown)
    for row in filter(_is_below, rows):
        console.print_line(_verdict(runs, row), bold=True)
    console.print_lines(row["unread"] for row in rows if row["unread"] is not None)
    console.print_prose(
        "Accuracy and accepted attackers are the runs' own claims: claimed, not proven. "
        "cmfl audit proves the decisions."
    )
    if isinstance(runs, ServiceRuns):
        console.print_prose(NOT_SERVED)
        readable = [row["run"] for row in rows if row["ledger"] is not None]
        console.print_lines(filter(None, map(runs.unknown, readable)))


def _verdict(runs: HomeRuns | ServiceRuns, row: RunSummary) -> str:
    if unknown := runs.unknown(row["run"]):
        return unknown
    if row["accuracy"] is None:
        return f"{row['run']}: no accuracy was measured"
    if _is_below(row):
        return (
            f"WARNING: {row['run']} ends below its floor: always answering the commonest class is "
            f"right more often"
        )
    audit = f"; {runs.audit_of(row['run'])} proves the decisions"
    checked = audit if row["ledger"] == "chain" else ""
    return f"{row['run']}: accuracy and accepted attackers are claimed, not proven{checked}"


def _is_below(row: RunSummary) -> bool:
    return row["floor"] is not None and is_below_floor(row["accuracy"], row["floor"])


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else console.whole(console.shortened(value))
