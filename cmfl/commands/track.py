"""`cmfl track`: a recorded run, logged to experiment trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from cmfl.commands.console import AsJson, complain, print_json, print_line
from cmfl.commands.exit_codes import WRONG
from cmfl.commands.options import (
    DEFAULT_HOME,
    ChainId,
    HomeFolder,
    RpcUrl,
    Rules,
    RunName,
    Settings,
)
from cmfl.where import Target, opened_ledger
from ledger.io.home import Home
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.configuration.schema import TrackSection
    from cmfl.tracking import TrackedRow
    from ledger.io.home import RunPaths


def track(
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    setting: Settings = None,
    rpc_url: RpcUrl = None,
    chain_id: ChainId = None,
    rules: Rules = None,
    json: AsJson = False,
) -> None:
    """Log a recorded run to MLflow, TensorBoard or Weights & Biases, and the verdict of an audit.

    Trackers are those of the run's own settings, and of --set track.mlflow=FOLDER,
    track.tensorboard=FOLDER and track.wandb=FOLDER. To repeat it adds what is new, and nothing
    twice. Exit code 2 if one of them fails.
    """
    from cmfl.tracking import (
        NOT_AUDITED,
        TrackingSession,
        described_run,
        prefixed,
        recorded_rows,
        require_apart,
    )

    where = Target(home, run, rpc_url=rpc_url, chain_id=chain_id)
    paths = _paths(where)
    section = _section(paths, tuple(setting or ()))
    require_apart(section, home)
    session = TrackingSession(section, complain)
    rows = recorded_rows(home, paths.name) or _rows_of_chain(where)
    session.open(described_run(home, paths.name, section), rows)
    model = paths.model if section.model and paths.model.exists() else None
    # A run on the memory ledger has no manifest, and no chain to audit.
    audited = section.audit and paths.manifest.exists()
    tags = {"audit": _verdict(where, tuple(rules or ())) if audited else NOT_AUDITED}
    if rows:
        tags["head"] = rows[-1].head
    session.close(prefixed(tags), model)
    if json:
        print_json({"run": paths.name, "rounds": len(rows), "tracked": session.places})
    else:
        for tracker, place in session.places.items():
            print_line(f"{len(rows)} rounds of {paths.name} are tracked by {tracker}: {place}")
    if session.warnings:
        raise typer.Exit(WRONG)


def _paths(where: Target) -> RunPaths:
    """Return the run's folder; a run on the memory ledger has no manifest, and must be named."""
    if where.run is not None:
        named = Home(where.home).run(where.run)
        if named.configuration.exists() and not named.manifest.exists():
            return named
    return where.run_paths()


def _section(paths: RunPaths, settings: tuple[str, ...]) -> TrackSection:
    """Return the trackers of a run's file, with settings over them."""
    from clients.configuration.parsing import tracked_by
    from ledger.io.home import read_text
    from ledger.io.parsing import MAX_TOML_BYTES, parse_toml

    recorded = parse_toml(read_text(paths.configuration, MAX_TOML_BYTES)).get("track", {})
    for each in settings:
        if not each.startswith("track."):
            raise ConfigurationError(f"--set {each}: only track.KEY=VALUE has an effect here")
    section = tracked_by({"track": recorded}, settings)
    if not section.used:
        raise ConfigurationError(
            "no tracker is named: --set track.mlflow=FOLDER, track.tensorboard=FOLDER or "
            "track.wandb=FOLDER"
        )
    return section


def _rows_of_chain(where: Target) -> list[TrackedRow]:
    """Return what the chain has of each round, for a run that was not played in this home."""
    from cmfl.tracking import tracked_row
    from ledger.chain.round_ledger import ends_after
    from ledger.protocol.ledger_state import RoundDecided

    with opened_ledger(where) as ledger:
        ends = ends_after(ledger, 0)
    return [
        tracked_row(
            {
                "round": end.round,
                "head": f"0x{end.head.hex()}",
                "decided": isinstance(end, RoundDecided),
                "accepted": end.accepted if isinstance(end, RoundDecided) else (),
                "views": end.views if isinstance(end, RoundDecided) else None,
            }
        )
        for end in ends
    ]


def _verdict(where: Target, rules: tuple[str, ...]) -> str:
    """Return what an audit says now, or why there was none."""
    from cmfl.auditing import AuditRequest
    from cmfl.commands.audit import audited_with_progress
    from cmfl.tracking import in_words
    from ledger.protocol.errors import CmflError

    try:
        return in_words(audited_with_progress(where, AuditRequest(jobs=1, rules=rules)))
    except (CmflError, OSError) as error:
        return f"not checkable: {error}"
