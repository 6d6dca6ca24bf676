"""`cmfl worker`, `cmfl join` and `cmfl leave`: take part with clients of one owner."""

from __future__ import annotations

import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from clients.worker.background import Moment
from clients.worker.status import (
    StatusFile,
    WorkerFolder,
    WorkerMetrics,
    WorkerState,
    read_status,
    serve_metrics,
    status_before,
    worker_status,
)
from clients.worker.worker import HONEST
from cmfl.arguments import digest_of_head
from cmfl.commands import FAILED, InterruptedCommand, console, sender
from cmfl.commands.options import MaxFee, MaxTip
from cmfl.commands.process import handled_with
from ledger.chain.ports import require_plain_sender
from ledger.history.fields import phase_name
from ledger.io.home import DISK
from ledger.protocol.encoding import checksum
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import Phase

if TYPE_CHECKING:
    from clients.worker.process import WorkerTarget
    from ledger.chain.rpc.node import RpcSettings
    from ledger.chain.rpc.rpc_chain import RpcChain


_log = logging.getLogger(__name__)


def worker(
    context: typer.Context,
    options: sender.ParticipantOptions,
    device: Annotated[str, "Device: cpu, cuda, cuda:N, or auto (cuda if available)."] = "cpu",
    max_fee: MaxFee = None,
    max_tip: MaxTip = None,
    rpc_timeout: Annotated[
        float, Option(min=0.5, max=300, help="Time limit of a response of the node, in seconds.")
    ] = 10.0,
    poll: Annotated[
        float, Option(min=0.05, max=60, help="Seconds between two polls of the chain.")
    ] = 0.5,
    metrics_port: Annotated[
        int | None, Option(min=0, max=65535, help="Port for Prometheus, on this machine only.")
    ] = None,
    accept_rollback: Annotated[bool, "Continue although the chain reverted final blocks."] = False,
    log_format: Annotated[str, "Log format: text, or json (one object per line)."] = "text",
    status: Annotated[
        bool, "Print the status in the worker's folder; exit 1 if the worker was killed."
    ] = False,
    json: console.AsJson = False,
) -> None:
    """Take part in a run with one or more clients.

    The worker reads the round, the seed and the committee from the chain. It then trains, commits,
    publishes, scores, votes and records for its clients. You can kill it and restart it on the same
    folder at any time. SIGTERM stops it at once; cmfl leave stops it after its round.
    """
    own = WorkerFolder(options.folder)
    if status:
        _print_status(own, json=json)
        return
    target = replace(
        options.target(f"machine.device={device}"),
        accept_rollback=accept_rollback,
        seed=secrets.randbits(64),
        behaviour=context.obj or HONEST,
    )
    with own.held(), _logged(log_format):
        settings_of_node = replace(
            sender.CappedSenderOptions(max_fee=max_fee, max_tip=max_tip).settings(),
            request_timeout_seconds=rpc_timeout,
        )
        keys = sender.private_keys(options.keystore or [], options.password_file)
        open_chain = partial(_chain, target.rpc_url, target.chain_id, keys, settings_of_node)
        last = _run(own, target, keys, open_chain, poll=poll, metrics_port=metrics_port)
        if json and last is not None:
            console.print_json(last)


def _run(
    own: WorkerFolder,
    places: WorkerTarget,
    keys: list[bytes],
    open_chain: Callable[[], RpcChain],
    *,
    poll: float,
    metrics_port: int | None,
) -> dict[str, Any] | None:
    """Take part until the end, and return the last status; None if nothing has begun."""
    from clients.worker.checks import finality_lag
    from clients.worker.process import Startup, WorkerLoop, find_deployed_run, open_worker

    signers = [KeySigner(key) for key in keys]
    end = threading.Event()
    with handled_with(lambda *_: end.set()):
        starting = Startup(own, end.wait, time.time)
        chain = starting.retry_until_ready(open_chain)
        if chain is None:
            return None
        with chain:
            run = starting.retry_until_ready(lambda: find_deployed_run(chain, places))
            if run is None:
                return None
            read_lag = partial(finality_lag, run.ledger.chain, places.confirmations)
            lag = starting.retry_until_ready(read_lag)
            if lag is None:
                return None
            parameters = run.document.parameters
            # Warned of at the chain's current pace.
            if (never := lag.closed_too_early(parameters.commit_blocks)) is not None:
                _log.warning("no client of this worker will take part: %s", never)
            elif (late := lag.seen_too_late(parameters.view_seconds)) is not None:
                _log.warning("%s", late)
            with (
                open_worker(run, places, signers, own) as (worker, counts),
                serve_metrics(WorkerMetrics(worker, counts, time.time), metrics_port),
            ):
                file = StatusFile(own.status)
                loop = WorkerLoop(worker, counts, own, file, lambda: chain.sender, poll)
                loop.run(lambda: Moment(time.time(), time.monotonic()), end.wait)
                return worker_status(worker, counts, loop.stand, chain.sender)


def _chain(url: str, chain_id: int, keys: list[bytes], settings: RpcSettings) -> RpcChain:
    """Return the node; the worker's richest account pays for all of its clients."""
    from ledger.chain.rpc.node import RpcReader
    from ledger.chain.rpc.rpc_chain import RpcChain

    with RpcReader(url, chain_id=chain_id, settings=settings) as node:
        accounts = [checksum(KeySigner(key).address) for key in keys]
        for account in accounts:
            require_plain_sender(node, account)
        balances = [node.balance_of(account) for account in accounts]
    balance = max(balances)
    if not balance:
        _log.warning("no account of this worker has funds, so it cannot send transactions")
    key = keys[balances.index(balance)]
    return RpcChain(url, key, chain_id=chain_id, settings=settings)


@contextmanager
def _logged(style: str) -> Iterator[None]:
    from clients.worker.process import LogFormat, logging_to

    if style not in set(LogFormat):
        raise ConfigurationError(f"--log-format {style[:40]}: must be one of text, json")
    levels = {console.Verbosity.QUIET: logging.ERROR, console.Verbosity.USUAL: logging.INFO}
    level = levels.get(console.chosen(), logging.DEBUG)
    with logging_to(sys.stderr, LogFormat(style), level):
        yield


def _print_status(own: WorkerFolder, *, json: bool) -> None:
    status, is_running = status_of(own)
    was_killed = not is_running and status.get("stand") != WorkerState.ENDED
    if json:
        console.print_json({**status, "is_running": is_running, "was_killed": was_killed})
    else:
        try:
            lines = list(_lines(status, is_running=is_running))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"{own.status}: a field of a status is wrong: {error}"
            raise ConfigurationError(message) from error
        console.print_lines(lines)
    if was_killed:
        raise typer.Exit(FAILED)


def status_of(own: WorkerFolder) -> tuple[dict[str, Any], bool]:
    """Return what a folder's worker reports, and whether it runs."""
    holder = own.holder()
    status = None if holder is not None and not own.status.exists() else read_status(own.status)
    # A status may be of the process before, whose round and roles are not those of the one now.
    if holder is not None and (status is None or status.get("pid") != holder):
        return status_before(WorkerState.STARTING, holder), True
    assert status is not None, "it was read, where nobody holds the folder"
    return status, own.is_held()


def _lines(status: dict[str, Any], *, is_running: bool) -> Iterator[str]:
    position = "no round is known yet"
    if status["round"] is not None:
        position = f"round {status['round']}, block {status['block']}"
    finished = ", the run is finished" if status.get("is_finished") is True else ""
    state = status["stand"]
    if is_running:
        runs = f"running as process {status['pid']}, {state}"
    elif state == WorkerState.ENDED:
        runs = "not running, ended"
    else:
        runs = f"not running, killed while {state}"
    yield f"{runs}; {position}{finished}"
    for client, role in status["roles"].items():
        done = [word for word in ("committed", "published") if role[word]]
        yield f"  client {client}: {role['role']}{''.join(f', {word}' for word in done)}"
    if status["view"] is not None:
        phase, view = phase_name(Phase(status["view"]["phase"])), status["view"]["view"]
        yield f"  {phase}, " + ("before its views" if view is None else f"view {view + 1}")
    for part, failure in status["troubles"].items():
        yield f"  {part}: {failure['says']} ({failure['times']} times)"


def join(
    options: sender.ParticipantOptions,
    genesis: Annotated[str | None, "Expected hash of block 0: 0x and 64 hex digits."] = None,
    json: console.AsJson = False,
) -> None:
    """Check everything that you need to take part in a run.

    Checks chain, contract, run document, clock, finality, model, key, funds, blobs, mailbox, data
    and folder, and prints the next command. Sends nothing to the chain. The exit code is 1 if
    something is missing.
    """
    from clients.worker.checks import CheckState, PreflightChecks
    from ledger.chain.rpc.node import RpcReader

    target = options.target()
    expected = None if genesis is None else digest_of_head(genesis, "--genesis")
    ready = PreflightChecks(
        target,
        options.folder,
        lambda: RpcReader(target.rpc_url, chain_id=target.chain_id, genesis_hash=expected),
        lambda: list(
            map(KeySigner, sender.private_keys(options.keystore or [], options.password_file))
        ),
        wall=time.time,
        probe=secrets.token_bytes(64),
    )
    results = list(ready.checks())
    is_ready = all(result.state in {CheckState.OK, CheckState.WARNING} for result in results)
    command = _worker_command(options, target)
    if json:
        clients, checks = ready.clients, [asdict(result) for result in results]
        about = {"ready": is_ready, "client": clients[0] if clients else None, "clients": clients}
        console.print_json(about | {"checks": checks, "command": command})
    else:
        rows = [(result.check, str(result.state), result.found) for result in results]
        console.print_table("requirements to join", ("check", "state", "found"), rows)
        if is_ready:
            sender.print_next("start with", command)
    raise typer.Exit(0 if is_ready else FAILED)


def _worker_command(options: sender.ParticipantOptions, target: WorkerTarget) -> str:
    """Return the command that starts the worker, with secrets and URLs as variables."""
    command = console.command_line(
        "worker",
        chain_id=target.chain_id,
        contract=target.contract,
        keystore=options.keystore,
        password_file=options.password_file,
        data=options.data,
        folder=options.folder,
        confirmations=options.confirmations,
        set=options.setting,
        allow_predictable_seeds=options.allow_predictable_seeds,
        allow_unknown_creation=options.allow_unknown_creation,
    )
    blobs = sender.quoted_place(target.blobs, sender.BLOBS_VARIABLE)
    mailbox = sender.quoted_place(target.mailbox, sender.MAILBOX_VARIABLE)
    url = sender.quoted_url(target.rpc_url)
    return f"{command} --blobs {blobs} --mailbox {mailbox} --rpc-url {url}"


LOOK_SECONDS = 0.2


def leave(
    folder: sender.WorkerFolderPath = sender.DEFAULT_WORKER,
    no_wait: Annotated[bool, "Send the request without waiting for the worker to stop."] = False,
    json: console.AsJson = False,
) -> None:
    """Stop a worker after its current round.

    Its clients stay registered. An absent client that is sampled counts as late in that round. To
    take part again, start the worker on the same folder. If the worker is killed before it stops,
    the request is lost.
    """
    worker = WorkerFolder(folder)
    if not worker.is_held():
        raise ConfigurationError(f"--folder {folder}: no worker is running on this folder")
    round_number = _round_of(worker)
    DISK.write_whole(worker.leave, b"")
    if not json:
        which = "its round" if round_number is None else f"round {round_number}"
        console.complain(f"{folder}: the worker stops after {which}")
    has_ended = False
    try:
        while not no_wait and not (has_ended := not worker.is_held()):
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        raise InterruptedCommand("interrupted; the worker still stops after its round") from None
    if has_ended and worker.leave.exists():
        console.complain(
            f"{folder}: the worker was killed before it could leave; restart it, then run this "
            f"command again"
        )
    if json:
        console.print_json({"round": round_number, "has_ended": has_ended})
    elif has_ended:
        last = _round_of(worker)
        console.print_line(
            f"{folder}: ended, with round {last} open" if last else f"{folder}: ended"
        )


def _round_of(worker: WorkerFolder) -> int | None:
    try:
        number = status_of(worker)[0].get("round")
    except ConfigurationError:
        return None
    return number if type(number) is int else None
