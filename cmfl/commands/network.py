"""`cmfl network`: a federation of worker processes on this machine, from nothing to its audit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from clients.testnet import ChainKind, StoreKind
from clients.testnet.watch import (
    LogFollower,
    NetworkSummary,
    NetworkSupervisor,
    RoundWatch,
    WatchedRound,
)
from cmfl.commands import INCOMPLETE, InterruptedCommand, console
from cmfl.commands.configuration_options import ConfigurationOptions
from cmfl.commands.console import AsJson, Verbosity, complain, print_json, print_line
from cmfl.commands.options import AllowPredictableSeeds
from ledger.io.processes import CommandError
from ledger.protocol.errors import ConfigurationError
from ledger.storage.blobs import FolderBlobs

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration
    from clients.testnet.network import LocalNetwork

ANVIL_VARIABLE = "CMFL_ANVIL"


def network(
    home: Annotated[Path, "New or empty folder for the whole network."] = Path("cmfl-network"),
    workers: Annotated[int, Option(min=1, max=256, help="Number of worker processes.")] = 12,
    rounds: Annotated[int, Option(min=1, help="Number of rounds of the run.")] = 10,
    chain: Annotated[ChainKind, f"Node. {ANVIL_VARIABLE} sets anvil's path."] = ChainKind.EMBEDDED,
    store: Annotated[StoreKind, "Location of blobs and mail."] = StoreKind.SERVED,
    *,
    configured: ConfigurationOptions,
    api: Annotated[bool, Option("--api/--no-api", help="Also run the audit service.")] = True,
    allow_predictable_seeds: AllowPredictableSeeds = False,
    json: AsJson = False,
) -> None:
    """Run and audit a federation of processes on this machine.

    The command starts chain, contract, funds, store, service and workers in order, all with PUBLIC
    TEST KEYS. It prints each round when it ends, and stops all processes at the end. With -v, it
    prints the logs of all processes, each line after the process name.
    """
    from clients.configuration.parsing import plain_values, require_unpredictable
    from clients.testnet.network import PACES, LocalNetwork, NetworkSettings, fitted_to_pace

    changes = (*configured.settings, f"protocol.rounds={rounds}")
    values = plain_values(configured.preset, configured.config, changes)
    configuration = fitted_to_pace(values, PACES[chain])
    require_unpredictable(configuration.protocol.beacon, is_allowed=allow_predictable_seeds)
    _require_playable(home, workers, configuration)
    settings = NetworkSettings(
        home=home.absolute(),
        configuration=configuration,
        workers=workers,
        chain=chain,
        store=store,
        anvil=os.environ.get(ANVIL_VARIABLE) or None,
        serves=api,
        allow_predictable_seeds=allow_predictable_seeds,
    )
    say: Callable[[str], None] = (lambda _: None) if json else print_line
    try:
        with LocalNetwork(settings, say) as federation:
            played = _play(federation, rounds, say)
            code, verdict = _audited(federation)
    except KeyboardInterrupt as error:
        raise InterruptedCommand(f"interrupted; the recorded data are in {home}") from error
    except CommandError as error:
        raise CommandError(f"{error} (logs are in {home / 'logs'})") from error
    pace = played.rounds_a_minute
    if json:
        print_json(
            {"played": asdict(played) | {"rounds_a_minute": round(pace, 2)}, "audit": verdict}
        )
        raise typer.Exit(code)
    print_line(f"{played.rounds} rounds, {played.decided} decided, {pace:.1f} a minute")
    if played.restarts:
        print_line(f"{played.restarts} workers ended unexpectedly and were restarted")
    print_line(f"audit: {verdict['outcome']}, {verdict['rounds']} rounds", bold=True)
    raise typer.Exit(code)


def _require_playable(home: Path, workers: int, configuration: Configuration) -> None:
    from clients.configuration.parsing import lot_warning, require_no_live_settings
    from clients.devices import require_cap

    if configuration.machine.isa is not None:
        require_cap(configuration.machine.isa)
    protocol, malice = configuration.protocol, configuration.malice
    warning = lot_warning(protocol.strategy, protocol.beacon, mines_at_once=False)
    if warning is not None:
        complain(f"warning: {warning}")
    require_no_live_settings(configuration)
    if workers > protocol.clients:
        raise ConfigurationError(
            f"--workers {workers}: must be at most {protocol.clients}, the number of clients"
        )
    if malice.attack or malice.members or malice.trainers:
        raise ConfigurationError(
            "malice: workers of a federation do not simulate attackers; remove the section"
        )
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ConfigurationError(f"--home {home}: is not empty; name a new folder")


def _play(federation: LocalNetwork, rounds: int, say: Callable[[str], None]) -> NetworkSummary:
    settings = federation.settings
    logs = LogFollower(settings.home / "logs")
    shows_logs = console.chosen() is Verbosity.VERBOSE
    # A round is abandoned at its deadline if it is not decided.
    deadline = settings.configuration.protocol.deadline_blocks * settings.clocks.block_seconds
    with federation.reader() as reader:
        blobs = FolderBlobs(federation.home.blobs)
        watch = RoundWatch(federation.ledger(reader), blobs, time.monotonic)
        federation.start_workers()
        return NetworkSupervisor(federation, watch).play(
            rounds,
            lambda ended: say(round_line(ended)),
            max(300.0, 2 * deadline),
            (lambda: logs.show(complain)) if shows_logs else lambda: None,
        )


def round_line(ended: WatchedRound) -> str:
    """Return one line about an ended round."""
    if ended.views is None:
        sentence = "abandoned"
    else:
        views = " and ".join(str(view + 1) for view in ended.views)
        sentence = f"view {views}, {len(ended.accepted)} accepted"
    for label, clients in (
        ("late", ended.late),
        ("unusable", ended.unusable),
        ("scores refused of", ended.refused),
        ("banned", ended.banned),
    ):
        if clients:
            sentence += f", {label} {', '.join(map(str, clients))}"
    return f"round {ended.number}: {sentence}, head {ended.head.hex()[:16]}, {ended.seconds:.1f} s"


def _audited(federation: LocalNetwork) -> tuple[int, dict[str, Any]]:
    from clients.configuration.parsing import rule_sources
    from clients.testnet.network import RUN

    arguments = ["audit", "--home", federation.settings.home, "--run", RUN, "--json"]
    for source in rule_sources(federation.settings.configuration):
        arguments += ["--rules", source]
    arguments += ["--rpc-url", federation.node.url, "--chain-id", federation.manifest.chain_id]
    process = federation.processes.start("audit", arguments)
    code = process.wait(1800.0)
    try:
        report: dict[str, Any] = loads(process.output.read_text("utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"the audit printed no report: {process.log_tail()}") from error
    return (INCOMPLETE if code is None else code), report
