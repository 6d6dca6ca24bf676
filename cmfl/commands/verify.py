"""`cmfl verify`: proofs, rounds, bundles, training and provenance, checked on this side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer import Argument, Option

from clients.datasets.own_samples import salt_of
from cmfl.auditing import AuditRequest, trusted_by
from cmfl.commands import WRONG, InterruptedCommand, code_of, console, options
from cmfl.commands.application import Commands
from cmfl.commands.sender import keystore_key, private_keys
from cmfl.recorded import read
from cmfl.replaying import MOST_JOBS, replay_target
from cmfl.where import Target, download_bundle, download_proof, opened_ledger
from ledger.audit.proofs.bundle_verification import RoundVerification, verify_bundle
from ledger.audit.proofs.container import open_bundle
from ledger.audit.proofs.documents import read_manifest
from ledger.audit.proofs.recorded import make_bundle, make_proof, read_trusted_contract
from ledger.audit.proofs.verification import ProofVerification, Trusted, verify_proof
from ledger.audit.report import AuditOutcome, Step
from ledger.audit.report_text import finding_line
from ledger.io.home import naming
from ledger.protocol.errors import ConfigurationError, EncodingError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from clients.replay.results import TrainingReplay
    from cmfl.provenance.verify import DocumentVerification


def verify_training(
    source: options.EvidenceOptions,
    round_number: Annotated[
        int | None,
        Option("--round", min=1, max=2**32 - 1, help="Number of a round. Default: all ended ones."),
    ] = None,
    rounds: Annotated[str | None, Option(metavar="A..B", help="First and last round.")] = None,
    client: Annotated[
        list[int] | None,
        Option(min=0, max=2**32 - 1, help="Index of a client; may be repeated. Default: all."),
    ] = None,
    sample: Annotated[int | None, Option(min=1, help="Number of updates drawn at random.")] = None,
    seed: Annotated[int, Option(min=0, help="Seed of the random draw.")] = 0,
    data: Annotated[
        Path | None,
        "Files of the data set. For owners' samples: one client's file, or a folder with "
        "0xADDRESS.npz (or .safetensors) and 0xADDRESS.salt for each client.",
    ] = None,
    mailbox: Annotated[
        str | None,
        "URL or folder of a federation's mailbox, with the clients' environments. Default: "
        "the location of the blobs.",
    ] = None,
    salt: Annotated[
        str | None, "Salt (32 bytes in hex) of the one client's samples, to check their digest."
    ] = None,
    keystore: Annotated[
        list[Path] | None,
        "Encrypted key of your client, which determines the salt of its samples; may be "
        "repeated. Without --client, the client's updates are repeated.",
    ] = None,
    password_file: Annotated[Path | None, "Keystores' password file. Default: ask."] = None,
    poisoned: Annotated[
        bool,
        "Repeat a simulation's attackers on their poisoned samples. Default: on the samples "
        "in the run's data_root.",
    ] = False,
    trained_here: Annotated[
        bool,
        "Assume this machine's class for updates without a recorded environment. Different "
        "bits then mean a different update.",
    ] = False,
    setting: Annotated[
        list[str] | None,
        "Setting for this machine, such as machine.isa=avx2, which limits the instruction "
        "set. model.name=FILE.py:CLASS names your copy of the run's model, which is executed.",
        Option("--set", metavar="KEY=VALUE"),
    ] = None,
    device: Annotated[str, "Device: cpu, cuda, cuda:N or auto."] = "cpu",
    jobs: Annotated[int, Option(min=1, max=MOST_JOBS, help="Number of training processes.")] = 1,
    log: Annotated[
        Path | None,
        "File of results, which are not repeated after an interruption. The file contains "
        "losses: protect it like a key.",
    ] = None,
    sign: Annotated[
        Path | None,
        "Encrypted key of an auditor (any account). It signs the verdicts, which are put "
        "into the mailbox as attestations.",
    ] = None,
    report: options.ReportFile = None,
    json: console.AsJson = False,
) -> None:
    """Repeat updates bit for bit, from the chain, the blobs and the owners' data.

    The command trains each update again from the model and the seed on the chain. Verdicts: "same",
    the bits are equal. "other", the same inputs and environment give a different update. "not
    checkable", the environment and the bits differ, or an input is missing or wrong.

    Exit codes: 0, all are the same. 1, at least one is another. 2, the mailbox did not accept the
    attestations of --sign; the result is still written. 3, something could not be checked.
    """
    from clients.replay.replay_inputs import ReplayRequest

    if report is not None:
        console.require_writable(report, "--report", as_json=json)
    where = source.target()
    where.require_chain_of_its_own()
    clients, salts = tuple(client or ()), {}
    if salt is not None:
        if len(clients) != 1:
            raise ConfigurationError(
                "--salt: applies to one client; name it with --client, or give a folder with "
                "0xADDRESS.salt"
            )
        salts = {clients[0]: salt_of(salt, "--salt")}
    request = ReplayRequest(
        rounds=options.rounds_between(round_number, rounds),
        clients=clients,
        sample=sample,
        seed=seed,
        data=data,
        mailbox=mailbox,
        salts=salts,
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
        with console.counting("training, updates") as show:
            result = replay_target(where, request, show)
    except KeyboardInterrupt as error:
        kept = "without --log no result was kept"
        if log is not None:
            kept = f"{log} has all results so far; repeat the same command to continue"
        raise InterruptedCommand(f"interrupted; {kept}") from error
    _end_of_training(result, report, json=json, is_signed=sign is not None)


def _end_of_training(
    result: TrainingReplay, report: Path | None, *, json: bool, is_signed: bool
) -> None:
    from json import dumps

    lines = [*result.lines(is_verbose=console.chosen() is console.Verbosity.VERBOSE)]
    if is_signed and not result.unpublished:
        attestations = "attestation" if result.published == 1 else "attestations"
        lines.append(f"{result.published} {attestations} signed: cmfl coverage shows them")
    console.print_result(result.as_dict(), lines, as_json=json)
    data = f"{dumps(result.as_dict(), indent=1, allow_nan=False)}\n".encode()
    written = console.write_report(report, data)
    if result.unpublished:
        console.complain(
            f"--sign: {result.published} attestations are in the mailbox, and the next one failed: "
            f"{result.unpublished}. Repeat with the same --log; training is not repeated"
        )
        raise typer.Exit(WRONG)
    raise typer.Exit(code_of(result.verdict.name.lower()) or written)


verify_app = Commands()

RoundNumber = Annotated[int, Option("--round", min=1, max=2**32 - 1, help="Number of the round.")]
ClientIndex = Annotated[int, Option("--client", min=0, max=2**32 - 1, help="Index of the client.")]


@verify_app.command("client")
def client(
    source: options.EvidenceOptions,
    round_number: RoundNumber,
    client_index: ClientIndex,
    proof: Annotated[
        Path | None, "File of a proof. Default: the proof is built from the home."
    ] = None,
    head: options.Head = None,
    json: console.AsJson = False,
) -> None:
    """Check a client's outcome in a round: whether its update was used, and why.

    The command prints a one-line answer and failed comparisons; -v prints all comparisons.

    The proof is checked against a head that you kept (--head) or against the contract on a trusted
    chain. That chain is --rpc-url with --address, or the home's own. With --api, a service builds
    the proof and is not trusted.

    Exit codes: 0, proven. 1, the proof is contradicted. 3, something could not be checked.
    """
    who, whole = ClientId(client_index), head is not None
    where = source.target()
    if proof is not None:
        if where.remote is not None:
            raise ConfigurationError("--proof and --api exclude each other; give one")
        found, trusted = read(proof).parsed, _trusted(where, round_number, head)
    elif where.remote is not None:
        trusted = _trusted(where, round_number, head)
        _, found = download_proof(where, round_number, who, whole=whole)
    else:
        with opened_ledger(where) as ledger:  # both from one block
            found = make_proof(ledger, where.published(), round_number, who, whole=whole)
            trusted = trusted_by(None, round_number, head)
            trusted = trusted or read_trusted_contract(ledger, round_number)
    result = verify_proof(found, round_number, who, trusted)
    is_verbose = console.chosen() is console.Verbosity.VERBOSE
    shown = [step for step in result.steps if is_verbose or step.is_ok is not True]
    lines = [line for step in shown for line in step.lines()]
    if is_verbose or result.outcome is not AuditOutcome.PASSED:
        lines += [f"note: {caveat.sentence}" for caveat in result.caveats]
    _end(result, lines, json=json)


@verify_app.command("round")
def round_(
    source: options.EvidenceOptions,
    round_number: Annotated[int, Argument(min=1, max=2**32 - 1, help="Number of the round.")],
    head: options.Head = None,
    rules: options.Rules = None,
    json: console.AsJson = False,
) -> None:
    """Check one round by the ten steps of an audit, from the chain and the blobs.

    With --api, a service sends the round's bundle. The bundle is checked against --head, or against
    the contract on a trusted chain (--rpc-url with --address).

    Exit codes: 0, every check passed. 1, there is a contradiction. 3, something could not be
    checked.
    """
    where, whole, own = source.target(), head is not None, tuple(rules or ())
    if where.remote is not None:
        trusted = _trusted(where, round_number, head)
        with download_bundle(where, round_number, whole=whole) as (_, sent, parts):
            result = verify_bundle(sent, parts, trusted, rules=own)
    else:
        with opened_ledger(where) as ledger:
            made = make_bundle(ledger, where.published(), round_number, whole=whole)
            trusted = trusted_by(None, round_number, head)
            trusted = trusted or read_trusted_contract(ledger, round_number)
        result = verify_bundle(made, where.published(), trusted, rules=own)
    _end(result, _lines_of(result), json=json)


@verify_app.command("bundle")
def bundle(
    source: options.ContractOptions,
    file: Annotated[Path, Argument(help="File written by cmfl export bundle.")],
    head: options.Head = None,
    rules: options.Rules = None,
    json: console.AsJson = False,
) -> None:
    """Check the round in a bundle by the ten steps of an audit, using only the file.

    The bundle is checked against a head that you kept (--head) or against the contract on a trusted
    chain. That chain is --rpc-url with --address, or the home's own.

    Exit codes: 0, every check passed. 1, there is a contradiction. 3, something could not be
    checked.
    """
    where = source.target()
    with ExitStack() as stack:
        with naming(file, (OSError, EncodingError)):
            parts = stack.enter_context(open_bundle(file))
            manifest = read_manifest(parts.manifest, parts)
        trusted = _trusted(where, manifest.round, head)
        result = verify_bundle(manifest, parts, trusted, rules=tuple(rules or ()))
    _end(result, _lines_of(result), json=json)


@verify_app.command("attestation")
def attestation(
    source: options.AttestedOptions,
    file: Annotated[
        Path,
        Argument(help="In-toto statement, ML-BOM, or folder of an RO-Crate or a signed model."),
    ],
    key: Annotated[Path | None, "Public key (PEM) that must have signed it."] = None,
    head: options.Head = None,
    *,
    witnesses: options.WitnessOptions,
    json: console.AsJson = False,
) -> None:
    """Check a document of cmfl export attestation, crate or mlbom, or a signed model folder.

    The command audits the run, derives the document again from the chain and the blobs, and names
    each field that differs. With --head and --witness-policy, the audit also checks the chain
    against a head that you kept and against witnesses.

    Exit codes: 0, every field matches the run, even if the run has continued since. 1, a field is
    false, the audit fails, or the document is about another contract or chain. 3, something could
    not be derived.
    """
    from cmfl.commands.audit import audited_with_progress
    from cmfl.provenance.documents import read_document
    from cmfl.provenance.verify import verify_document

    where = source.target()
    rules, consulted = tuple(source.rules or ()), witnesses.witnesses()
    document = read_document(file)
    request = AuditRequest(head, rules=rules, witnesses=consulted)
    result = verify_document(
        document, where, lambda: audited_with_progress(where, request), source.mailbox, key
    )
    lines = [difference.sentence for difference in result.differences]
    _end(result, [*lines, *(f"note: {note}" for note in result.notes)], json=json)


verify_app.command("training")(verify_training)


def _lines_of(result: RoundVerification) -> Iterator[str]:
    steps: tuple[Step, ...] = (*result.steps, *result.audit)
    yield from (line for step in steps for line in step.lines())
    yield from map(finding_line, result.findings)
    yield from (f"note: {caveat.sentence}" for caveat in result.caveats)
    yield from (f"not checked: {one.field} ({one.reason})" for one in result.unchecked)


def _end(
    result: ProofVerification | RoundVerification | DocumentVerification,
    lines: Iterable[str],
    *,
    json: bool,
) -> NoReturn:
    if json:
        console.print_json(result.as_dict())
    else:
        console.print_line(result.sentence, bold=True)
        console.print_lines(f"  {line}" for line in lines)
    raise typer.Exit(code_of(result.outcome))


def _trusted(where: Target, round_number: int, head: str | None) -> Trusted | None:
    if where.rpc_url is not None and head is None and where.address is None:
        raise ConfigurationError("--rpc-url needs --address, the trusted contract")
    has_chain = where.rpc_url is not None or (where.remote is None and where.chain_file.exists())
    return trusted_by(where if has_chain else None, round_number, head)
