"""`cmfl runs`: summaries of the runs of a home or a service, one by one.

Rounds and head are read from the chain. Accuracy and accepted attackers are claims of the runs' own
files. `cmfl runs show` compares the claimed head of a run with the chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typer import Argument

from cmfl.commands import FAILED, WRONG, console, options
from cmfl.commands.application import Commands
from cmfl.recorded import names_in, target_of
from cmfl.where import HOME, RemoteService, Target, chain_at, require_no_node
from ledger import claims
from ledger.chain.contract.ledger import (
    read_run_manifest,
    require_unplayed,
    settings_digest,
    was_in_memory,
)
from ledger.chain.round_ledger import last_ended
from ledger.history.answers_rounds import SeriesAnswer
from ledger.io.home import Home
from ledger.protocol import canonical
from ledger.protocol.documents.run import decode_run
from ledger.protocol.errors import CmflError, ConfigurationError, ServiceError
from ledger.protocol.types import Digest

if TYPE_CHECKING:
    from api.client import Service
    from api.schemas import DeploymentSummary

MAX_RUNS = 1_024  # of a service


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Summary of a run; `note` and `audit` are for people alone."""

    run: str
    ledger: Literal["chain", "memory"] | None = None
    rounds: int | None = None
    of: int | None = None
    accuracy: float | None = None
    floor: float | None = None
    accepted_attackers: float | None = None  # their share of the accepted updates
    head: str | None = None  # 0x-hex
    configuration: str | None = None  # digest of the run's own settings file, 0x-hex
    unread: str | None = None  # why the chain's rounds and head are unknown
    note: str = ""  # why accuracy or attackers are unknown
    audit: str = ""  # the command that audits the run

    @property
    def row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COLUMNS}

    @property
    def is_below_floor(self) -> bool:
        return self.floor is not None and claims.is_below_floor(self.accuracy, self.floor)


COLUMNS = [each.name for each in fields(RunSummary) if each.name not in {"note", "audit"}]


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """A home, and a node whose chain has some of its runs, or a service."""

    home: options.HomeFolder = HOME
    rpc_url: options.RpcUrl = None
    chain_id: options.ChainId = None
    api: options.Api = None
    api_token_file: options.ApiTokenFile = None

    def target(self, run: str | None = None) -> Target:
        remote = RemoteService.of(self.api, self.api_token_file)
        return Target(self.home, run, rpc_url=self.rpc_url, chain_id=self.chain_id, remote=remote)


class HomeRuns:
    """Runs of a home, by their names; what they claim of themselves is in their folders."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.place = str(target.home)
        self.names = names_in(target.home)

    def summary(self, name: str) -> RunSummary:
        paths = Home(self._target.home).run(name)
        claimed = claims.claimed_run(paths)
        planned = self.settings(name).get("protocol.rounds", "")
        summary = RunSummary(
            name,
            of=int(planned) if planned.isdecimal() else None,
            accuracy=claimed.accuracy,
            floor=claimed.floor,
            accepted_attackers=claimed.accepted_attackers,
            configuration=settings_digest(paths),
        )
        if not paths.manifest.exists() and was_in_memory(paths):
            return replace(summary, ledger="memory", rounds=claimed.rounds, head=claimed.head)
        audit = console.command_line("audit", home=self._target.home, run=name)
        summary = replace(summary, ledger="chain", audit=audit)
        if not paths.manifest.exists():
            require_unplayed(paths)
            return replace(summary, rounds=0)
        manifest = read_run_manifest(paths)
        with self._target.ledger_of(manifest) as ledger:
            if ledger is None:
                where = f"chain {manifest.chain_id}: name its node by --rpc-url"
                return replace(summary, unread=f"{name} is on {where}")
            state = ledger.state()
            return replace(summary, rounds=last_ended(state), head=f"0x{state.head.hex()}")

    def settings(self, name: str) -> dict[str, str]:
        return claims.recorded_settings(Home(self._target.home).run(name))


class ServiceRuns:
    """Runs of a service, by their names."""

    def __init__(self, remote: RemoteService, service: Service, chain: str) -> None:
        self._remote, self._service, self._chain = remote, service, chain
        self.place = service.shown_url
        self._served = service.deployments(chain)["deployments"]
        if len(self._served) > MAX_RUNS:
            raise ServiceError(f"{self.place}: serves {len(self._served)} runs, over {MAX_RUNS}")
        if not self._served:
            raise ConfigurationError(f"{self.place} serves no run")
        self.names = sorted(deployment["run"] for deployment in self._served)

    def summary(self, name: str) -> RunSummary:
        """Return what is known of a run, for its audit on a node that the reader names."""
        listed = self._listed(name)
        deployment = self._service.deployment(self._chain, listed["address"])
        series, details = deployment.series(), deployment.details()
        numbers, note, claimed = series["round"], _unknown(name, series), series["claimed"]
        attackers = None
        if claimed is not None and not note:
            pairs = zip(series["accepted"], claimed["malicious_accepted"], strict=True)
            counts = [
                (accepted or 0, malicious) for accepted, malicious in pairs if malicious is not None
            ]
            total = sum(accepted for accepted, _ in counts)
            attackers = sum(malicious for _, malicious in counts) / total if total else None
        on = {"chain_id": self._chain.partition("-")[0], "address": listed["address"]}
        return RunSummary(
            name,
            "chain",
            rounds=numbers[-1] - (series["status"][-1] == "open") if numbers else 0,
            of=listed["rounds"],
            accuracy=None if claimed is None else claims.last_known(claimed["accuracy"]),
            floor=None if claimed is None else claims.last_known(claimed["floor"]),
            accepted_attackers=attackers,
            head=details["state"]["head"],
            note=note,
            audit=console.command_line("audit", api=self.place, rpc_url="URL", **on),
        )

    def settings(self, name: str) -> dict[str, str]:
        digest = Digest(bytes.fromhex(self._listed(name)["config"][2:]))
        document = decode_run(self._remote.blobs().get(digest, canonical.MAX_DOCUMENT_BYTES))
        return claims.settings_by_name(
            {**document.experiment, "protocol": asdict(document.parameters)}
        )

    def _listed(self, name: str) -> DeploymentSummary:
        named = [deployment for deployment in self._served if deployment["run"] == name]
        if len(named) != 1:
            there = "no run" if not named else "more than one run"
            raise ConfigurationError(
                f"{self.place} serves {there} {name!r}; it serves {', '.join(self.names)}"
            )
        return named[0]


def _unknown(name: str, series: SeriesAnswer) -> str:
    if series["claims"] == "absent":
        return f"{name}: the service does not have the run's own files: no accuracy"
    if series["claims"] == "unreadable":
        return f"{name}: the service cannot read the run's own files: no accuracy"
    numbers = series["round"]
    if numbers and len(numbers) < numbers[-1]:
        return (
            f"{name}: the service shows only some of {numbers[-1]} rounds, so the share of "
            f"accepted attackers is unknown"
        )
    return ""


@contextmanager
def open_runs(target: Target) -> Iterator[HomeRuns | ServiceRuns]:
    """Open the home's runs, or the service's."""
    if target.remote is None:
        yield HomeRuns(target)
        return
    require_no_node(target)
    with target.remote.service() as service:
        yield ServiceRuns(target.remote, service, chain_at(service, target.chain_id))


HeadOutcome: TypeAlias = Literal[
    "matches", "differs", "missing", "unclaimed", "in_memory", "not_asked"
]
"""Of a comparison: the round of a `missing` head has not ended on the chain, and the run of one
that is `not_asked` is on a node's chain, and no node was named."""


@dataclass(frozen=True, slots=True)
class HeadComparison:
    """A claimed head and the chain's, 0x-hex, after a round; None where there is none."""

    outcome: HeadOutcome
    round: int | None = None
    head: str | None = None
    claimed: str | None = None

    @property
    def contradicts(self) -> bool:
        return self.outcome in {"differs", "missing"}


def compare_head(target: Target, claimed: claims.ClaimedRun) -> HeadComparison:
    """Return the comparison of the last head that a run claims in its files with its chain."""
    paths = Home(target.home).run(target.run or "")
    number = claimed.last_round
    if number is None:
        return HeadComparison("unclaimed")
    if not paths.manifest.exists() and was_in_memory(paths):
        return HeadComparison("in_memory", number, claimed=claimed.head)
    with target.ledger_of(read_run_manifest(paths)) as ledger:
        if ledger is None:
            return HeadComparison("not_asked", number, claimed=claimed.head)
        history = target.history(ledger.chain)
        ended = history.rounds(number, number) if 0 < number <= history.newest() else []
    end = ended[0].end if ended else None
    if end is None:
        return HeadComparison("missing", number, claimed=claimed.head)
    head = f"0x{end.head.hex()}"
    same: HeadOutcome = "matches" if head == claimed.head else "differs"
    return HeadComparison(same, number, head, claimed.head)


def head_message(run: str, comparison: HeadComparison) -> str:
    """Return the comparison in a sentence."""
    after = f"after round {comparison.round}"
    claimed = f"{run} claims head {comparison.claimed} {after}"
    return {
        "matches": f"{run}: the chain has the claimed head {after}",
        "differs": f"{claimed}, and the chain has {comparison.head}: its files were "
        f"altered, or belong to another chain",
        "missing": f"{claimed}, and that round has not ended on the chain: its files were "
        f"altered, or the chain has lost its end",
        "unclaimed": f"{run}: its metrics.jsonl has no row here, so it claims no head",
        "in_memory": f"{run}: it ran on the memory ledger, so no chain has its head",
        "not_asked": f"{run}: it is on a node's chain, which was not checked; name the node "
        f"with --rpc-url",
    }[comparison.outcome]


runs_app = Commands()

NOT_SERVED = (
    "The heads are claims of the service, too. The service has no runs on the memory ledger, and "
    "no digests of the runs' own settings files."
)
Name = Annotated[
    str, Argument(metavar="RUN", help="Name of the run.", autocompletion=options.runs_of_home)
]


@runs_app.command("list")
def list_runs(
    place: PlaceOptions, json: console.AsJson = False, csv: console.AsCsv = False
) -> None:
    """List the runs of a home: rounds, accuracy and its floor, accepted attackers, head.

    The floor is the accuracy of always answering the most frequent class. Rounds and head come from
    the chain; without --rpc-url, they are unknown for a run on a node. The command reports an
    unreadable run on standard error with exit code 2, and lists the others.
    """
    target = place.target()
    summaries: list[RunSummary] = []
    faults: list[Exception] = []
    with open_runs(target) as runs:
        for name in runs.names:
            try:
                summaries.append(runs.summary(name))
            except (CmflError, OSError) as error:
                summaries.append(RunSummary(name))
                faults.append(error)
    rows = [summary.row for summary in summaries]
    if csv:
        console.print_csv(COLUMNS, rows)
    elif json:
        console.print_json(rows)
    else:
        _print_list(runs.place, summaries)
        if target.remote is not None:
            console.print_prose(NOT_SERVED)
            console.print_lines(summary.note for summary in summaries if summary.note)
    for fault in faults:
        console.complain(str(fault))
    raise typer.Exit(WRONG if faults else 0)


@runs_app.command("show")
def show(name: Name, place: PlaceOptions, json: console.AsJson = False) -> None:
    """Show one run: its summary and its settings.

    The command compares the head in the run's files with the chain. A difference gives a warning
    and exit code 1. Results claimed by a service are not compared.
    """
    target = place.target(name)
    is_remote, paths = target.remote is not None, Home(target.home).run(name)
    if not is_remote:
        target_of(target.home, name)  # refused if there is no such run
    with open_runs(target) as runs:
        summary, settings = runs.summary(name), runs.settings(name)
    if is_remote:
        comparison = HeadComparison("not_asked", summary.rounds, claimed=summary.head)
    else:
        comparison = compare_head(target, claims.claimed_run(paths))
    stop = None if is_remote else claims.claimed_stop(paths)
    row = summary.row
    if json:
        ended = {} if stop is None else {"early_stop": asdict(stop)}
        console.print_json({**row, "chain": asdict(comparison), **ended, "settings": settings})
    else:
        known = {key: value for key, value in row.items() if (key, value) != ("unread", None)}
        console.print_lines(
            f"{key.replace('_', ' '):18} {_shown(value)}".rstrip() for key, value in known.items()
        )
        console.print_line(_verdict(summary))
        if stop is not None:
            console.print_line(stop.sentence)
        if is_remote:
            console.print_prose(NOT_SERVED)
        elif summary.unread is None and not comparison.contradicts:
            console.print_line(head_message(name, comparison))
        console.print_table("settings", ("setting", "value"), list(settings.items()))
    if comparison.contradicts:
        console.complain(f"WARNING: {head_message(name, comparison)}")
        raise typer.Exit(FAILED)


def _print_list(place: str, summaries: list[RunSummary]) -> None:
    columns = ("run", "ledger", "rounds", "accuracy", "floor", "accepted_attackers", "head")
    shown = []
    for summary in summaries:
        of = "" if None in {summary.rounds, summary.of} else f"/{summary.of}"
        row = summary.row | {"rounds": f"{_shown(summary.rounds)}{of}"}
        shown.append([_shown(row[column]) for column in columns])
    titles = [column.replace("_", " ") for column in columns]
    console.print_table(f"runs of {place}", titles, shown)
    for summary in summaries:
        if summary.is_below_floor:
            console.print_line(_verdict(summary), bold=True)
    console.print_lines(summary.unread for summary in summaries if summary.unread is not None)
    console.print_prose(
        "The runs themselves report accuracy and accepted attackers: claimed, not proven. "
        "cmfl audit verifies the decisions."
    )


def _verdict(summary: RunSummary) -> str:
    if summary.note:
        return summary.note
    if summary.accuracy is None:
        return f"{summary.run}: no accuracy was measured"
    if summary.is_below_floor:
        return (
            f"WARNING: {summary.run} ends below its floor, the accuracy of always predicting "
            "the most frequent class"
        )
    audit = f"; {summary.audit} verifies the decisions" if summary.audit else ""
    return f"{summary.run}: accuracy and accepted attackers are claimed, not proven{audit}"


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else console.whole(console.shortened(value))
