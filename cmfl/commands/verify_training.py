"""`cmfl verify training`: updates repeated bit for bit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands import verbosity
from cmfl.commands.console import AsJson, complain, counting, print_json, print_line
from cmfl.commands.exit_codes import WRONG, InterruptedCommand, code_of
from cmfl.commands.home_files import require_writable, wrote_report
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.sender import keystore_key, private_keys
from cmfl.commands.source_options import EvidenceOptions
from cmfl.commands.verbosity import Verbosity
from cmfl.replaying import MOST_JOBS
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.replay.replayed_update import TrainingReplay

_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")

Clients = Annotated[
    list[int] | None,
    typer.Option(
        "--client", min=0, max=2**32 - 1, help="Index of a client; may be repeated; else all."
    ),
]


@expand_groups
def verify_training(
    source: EvidenceOptions,
    round_number: Annotated[
        int | None,
        typer.Option("--round", min=1, max=2**32 - 1, help="One round; else all that have ended."),
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(metavar="A..B", help="First and last round.")
    ] = None,
    client: Clients = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Draw so many of these updates.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The data set's files; with owners' own samples, the file of the one client, or a "
            "folder with 0xADDRESS.npz (or .safetensors) of each, and 0xADDRESS.salt beside it."
        ),
    ] = None,
    mailbox: Annotated[
        str | None,
        typer.Option(
            help="URL or folder of a federation's mailbox, in which its clients state their "
            "environments; else that of the blobs."
        ),
    ] = None,
    salt: Annotated[
        str | None,
        typer.Option(
            help="32 bytes in hex, of the one client's samples: compare these with their digest."
        ),
    ] = None,
    keystore: Annotated[
        list[Path] | None,
        typer.Option(
            help="Encrypted key of a client of yours: the salt of its samples follows from it, and "
            "its updates are repeated if no --client is named; may be repeated."
        ),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="Of the keystores; else asked for.")
    ] = None,
    poisoned: Annotated[
        bool,
        typer.Option(
            "--poisoned",
            help="Repeat a simulation's attackers on their poisoned samples, as they trained; else "
            "on the samples of its data_root.",
        ),
    ] = False,
    trained_here: Annotated[
        bool,
        typer.Option(
            "--trained-here",
            help="Take updates whose environment nobody recorded to be trained in this machine's "
            "class: bits that differ are then another update.",
        ),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Of this machine: model.name=FILE.py:CLASS, your copy of the run's own model, "
            "which is run; machine.isa=avx2, a cap of the instruction set; and others.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or auto.")] = "cpu",
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Processes that train.")] = 1,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Add each result to this file, and do not repeat what it has: to go on after an "
            "interruption. It holds the losses: keep it as you keep a key."
        ),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            help="Encrypted key of an auditor, who need not be a client: sign the verdicts, and "
            "put them into the mailbox as attestations."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="File of the JSON report; an existing file is replaced.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Repeat updates bit for bit, from the chain, the blobs and the owners' data.

    Each update is trained again from the model and the seed that the chain names. "same": these are
    its bits. "other": the same inputs in the same environment give another update. "not checkable":
    the environment differs and so do the bits, or an input is missing or not the one that the run
    document binds, and the reason says which. Exit code 0: all are the same. 1: at least one is
    another. 3: none is another, but something could not be checked. 2: with --sign, a mailbox that
    does not take the attestations; the result is shown and written all the same.
    """
    from cmfl.replaying import ReplayRequest, replay_target

    if report is not None:
        require_writable(report, "--report", as_json=json)
    where = source.target()
    where.require_chain_of_its_own()
    request = ReplayRequest(
        rounds=read_bounds(round_number, rounds),
        clients=tuple(client or ()),
        sample=sample,
        seed=seed,
        data=data,
        mailbox=mailbox,
        salts=_salts(salt, tuple(client or ())),
        keys=tuple(private_keys(keystore, password_file)) if keystore else (),
        poisoned=poisoned,
        trained_here=trained_here,
        settings=tuple(setting or ()),
        device=device,
        jobs=jobs,
        log=log,
        attests=None if sign is None else keystore_key(sign, password_file),
    )
    try:
        with counting("training, updates") as show:
            result = replay_target(where, request, show)
    except KeyboardInterrupt as error:
        kept = "without --log no result was kept"
        if log is not None:
            kept = f"{log} has all results so far; repeat the same command to continue"
        raise InterruptedCommand(f"interrupted; {kept}") from error
    _end(result, report, json=json, is_signed=sign is not None)


def _end(result: TrainingReplay, report: Path | None, *, json: bool, is_signed: bool) -> None:
    """Print the result, write its report, and end with the verdict's code."""
    from json import dumps

    if json:
        print_json(result.as_dict())
    else:
        is_verbose = verbosity.chosen() is Verbosity.VERBOSE
        for line in result.lines(is_verbose=is_verbose):
            print_line(line)
        if is_signed and not result.unpublished:
            attestations = "attestation" if result.published == 1 else "attestations"
            print_line(f"{result.published} {attestations} signed: cmfl coverage shows them")
    data = f"{dumps(result.as_dict(), indent=1, allow_nan=False)}\n".encode()
    written = report is None or wrote_report(report, data)
    if result.unpublished:
        complain(
            f"--sign: of the attestations {result.published} are in the mailbox, and the next is "
            f"not: {result.unpublished}; repeated with the same --log, nothing is trained again"
        )
        raise typer.Exit(WRONG)
    raise typer.Exit(code_of(result.verdict.name.lower()) or (0 if written else WRONG))


def read_bounds(round_number: int | None, rounds: str | None) -> tuple[int, int] | None:
    """Return the first and the last round that are asked for; None for all.

    Raises:
        ConfigurationError: both options, or no range.
    """
    if rounds is None:
        return None if round_number is None else (round_number, round_number)
    if round_number is not None:
        raise ConfigurationError("--round and --rounds: give one of them")
    match = _RANGE.fullmatch(rounds)
    if match is None:
        raise ConfigurationError(f"--rounds {rounds[:80]}: must be first and last round, as 3..7")
    return int(match[1]), int(match[2])


def _salts(salt: str | None, clients: tuple[int, ...]) -> dict[int, bytes]:
    """Return the salt of the one client's samples."""
    from clients.datasets.own_samples import salt_of

    if salt is None:
        return {}
    if len(clients) != 1:
        raise ConfigurationError(
            "--salt: is one client's: name it with --client, or give a folder with 0xADDRESS.salt"
        )
    return {clients[0]: salt_of(salt, "--salt")}
