"""`cmfl verify`: proofs, rounds, bundles, training and provenance, checked on this side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from cmfl.arguments import naming
from cmfl.commands import verbosity
from cmfl.commands.console import AsJson, print_json, print_line
from cmfl.commands.exit_codes import code_of
from cmfl.commands.option_groups import expand_groups
from cmfl.commands.options import Head, Rules
from cmfl.commands.source_options import AttestedOptions, ContractOptions, EvidenceOptions
from cmfl.commands.verbosity import Verbosity
from cmfl.commands.verify_training import verify_training
from cmfl.commands.witness_options import WitnessOptions
from cmfl.where import Target, download_bundle, download_proof, opened_ledger
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from cmfl.provenance.verify import DocumentVerification
    from ledger.audit.bundles.bundle_verification import RoundVerification
    from ledger.audit.proofs.proof import ClientProof
    from ledger.audit.proofs.proof_verification import ProofVerification
    from ledger.audit.proofs.trust import Caveat, Trusted, VerificationStep
    from ledger.chain.contract.ledger import CommitteeLedger
    from ledger.protocol.types import ClientId

app = typer.Typer(
    help="Check a client's part, a round, a bundle, the training or provenance.",
    no_args_is_help=True,
)

RoundNumber = Annotated[
    int, typer.Option("--round", min=1, max=2**32 - 1, help="Number of the round.")
]
Proof = Annotated[
    Path | None,
    typer.Option("--proof", help="A proof that somebody sent; else it is made from the home."),
]


@app.command("client")
@expand_groups
def client(
    source: EvidenceOptions,
    round_number: RoundNumber,
    client_index: Annotated[
        int, typer.Option("--client", min=0, max=2**32 - 1, help="Index of the client.")
    ],
    proof: Proof = None,
    head: Head = None,
    json: AsJson = False,
) -> None:
    """Check what became of a client in a round: was its update used, and why or why not.

    One line answers, and comparisons that do not hold follow; -v prints all of them.

    A proof is held against --head, a head that was kept, or against the contract on a chain that is
    trusted: --rpc-url with --address, or the home's own. With --api a service makes the proof, and
    is trusted for nothing of it. Exit code 0: proven. 1: the proof is contradicted. 3: something
    could not be checked.
    """
    from cmfl.proofs import read
    from ledger.audit.proofs.proof_verification import verify_proof
    from ledger.audit.report import AuditOutcome
    from ledger.protocol.types import ClientId

    who = ClientId(client_index)
    where = source.target()
    if proof is not None:
        if where.remote is not None:
            raise ConfigurationError("--proof and --api: give one of them")
        found, trusted = read(proof).parsed, _trusted(where, round_number, head)
    elif where.remote is not None:
        trusted = _trusted(where, round_number, head)
        _, found = download_proof(where, round_number, who, whole=head is not None)
    else:
        found, trusted = _made(where, round_number, who, head)
    result = verify_proof(found, round_number, who, trusted)
    if not json:
        print_line(result.sentence, bold=True)
        is_verbose = verbosity.chosen() is Verbosity.VERBOSE
        _show_steps([step for step in result.steps if is_verbose or step.is_ok is not True])
        if is_verbose or result.outcome is not AuditOutcome.PASSED:
            _show_caveats(result.caveats)
    _end(result, json=json)


@app.command("round")
@expand_groups
def round_(
    source: EvidenceOptions,
    round_number: Annotated[int, typer.Argument(min=1, max=2**32 - 1, help="Of the round.")],
    head: Head = None,
    rules: Rules = None,
    json: AsJson = False,
) -> None:
    """Check one round by the ten steps of an audit, from chain and blobs.

    With --api a service sends the round's bundle, which is held against --head or against the
    contract on a chain that is trusted: --rpc-url with --address. Exit code 0: everything was
    checked and is true. 1: a contradiction. 3: something could not be checked.
    """
    from ledger.audit.bundles.bundle_verification import make_bundle, verify_bundle

    where = source.target()
    if where.remote is not None:
        trusted_there = _trusted(where, round_number, head)
        with download_bundle(where, round_number, whole=head is not None) as (_, sent, parts):
            result = verify_bundle(sent, parts, trusted_there, rules=tuple(rules or ()))
        _show_round(result, json=json)
    with opened_ledger(where) as ledger:
        bundle = make_bundle(ledger, where.published(), round_number, whole=head is not None)
        trusted = _trust(ledger, round_number, head)
    result = verify_bundle(bundle, where.published(), trusted, rules=tuple(rules or ()))
    _show_round(result, json=json)


@app.command("bundle")
@expand_groups
def bundle(
    source: ContractOptions,
    file: Annotated[Path, typer.Argument(help="A bundle, as cmfl export bundle writes it.")],
    head: Head = None,
    rules: Rules = None,
    json: AsJson = False,
) -> None:
    """Check the round in a bundle by the ten steps of an audit, with nothing but the file.

    It is held against --head, a head that was kept, or against the contract on a chain that is
    trusted: --rpc-url with --address, or the home's own. Exit code 0: everything was checked and is
    true. 1: a contradiction. 3: something could not be checked.
    """
    from ledger.audit.bundles.bundle import read_manifest
    from ledger.audit.bundles.bundle_verification import verify_bundle
    from ledger.audit.bundles.container import open_bundle

    where = source.target()
    with naming(file), open_bundle(file) as parts:
        manifest = read_manifest(parts.manifest, parts)
        trusted = _trusted(where, manifest.basis.round, head)
        result = verify_bundle(manifest, parts, trusted, rules=tuple(rules or ()))
    _show_round(result, json=json)


@app.command("attestation")
@expand_groups
def attestation(
    source: AttestedOptions,
    file: Annotated[
        Path,
        typer.Argument(
            help="An in-toto statement, an ML-BOM, or the folder of an RO-Crate or a signed model."
        ),
    ],
    key: Annotated[
        Path | None, typer.Option(help="Public key (PEM) that must have signed it.")
    ] = None,
    head: Head = None,
    *,
    witnesses: WitnessOptions,
    json: AsJson = False,
) -> None:
    """Check every field of what cmfl export attestation, crate or mlbom has written.

    Also a folder of cmfl model export --sign.

    The run is audited, and the document derived again from its chain and blobs: a field that
    differs is named. With --head and --witness-policy the audit holds the chain itself against a
    head that was kept and against witnesses. Exit code 0: every field is the run's, also if the run
    has gone on since. 1: a field is false, the audit fails, or the document is about another
    contract or chain. 3: something could not be derived.
    """
    from cmfl.auditing import AuditRequest
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
    if not json:
        print_line(result.sentence, bold=True)
        for difference in result.differences:
            print_line(f"  {difference.sentence}")
        for note in result.notes:
            print_line(f"  note: {note}")
    _end(result, json=json)


app.command("training")(verify_training)


def _show_round(result: RoundVerification, *, json: bool) -> NoReturn:
    from ledger.audit.report_text import finding_line, step_lines

    if not json:
        print_line(result.sentence, bold=True)
        _show_steps(result.steps)
        for step in result.audit:
            for line in step_lines(step):
                print_line(f"  {line}")
        for finding in result.findings:
            print_line(f"  {finding_line(finding)}")
        _show_caveats(result.caveats)
        for one in result.unchecked:
            print_line(f"  not checked: {one.field} ({one.reason})")
    _end(result, json=json)


def _show_steps(steps: Sequence[VerificationStep]) -> None:
    """Print each step with what was expected and what was computed."""
    for step in steps:
        print_line(f"  {_MARKS[step.is_ok]}  {step.name}: {step.name.sentence}")
        print_line(f"      expected {_text(step.expected)}")
        print_line(f"      computed {_text(step.computed)}")


def _show_caveats(caveats: tuple[Caveat, ...]) -> None:
    """Print what is not proven."""
    for caveat in caveats:
        print_line(f"  note: {caveat.sentence}")


def _end(
    result: ProofVerification | RoundVerification | DocumentVerification, *, json: bool
) -> NoReturn:
    if json:
        print_json(result.as_dict())
    raise typer.Exit(code_of(result.outcome))


_MARKS = {True: "ok", False: "NO", None: "? "}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_text, value)) or "(none)"
    return "(not known here)" if value is None else str(value) or "(nothing)"


def _made(
    where: Target, round_number: int, who: ClientId, head: str | None
) -> tuple[ClientProof, Trusted]:
    """Return a proof, and what it is held against, both from one block."""
    from ledger.audit.proofs.proof_maker import make_proof

    with opened_ledger(where) as ledger:
        whole = head is not None
        made = make_proof(ledger, where.published(), round_number, who, whole=whole)
        return made, _trust(ledger, round_number, head)


def _trust(ledger: CommitteeLedger, round_number: int, head: str | None) -> Trusted:
    """Return a head that was kept, else what the contract says of the round."""
    from cmfl.verifying import trusted_head
    from ledger.audit.proofs.trust import read_trusted_contract

    return trusted_head(head) if head is not None else read_trusted_contract(ledger, round_number)


def _trusted(where: Target, round_number: int, head: str | None) -> Trusted | None:
    """Return what the options say to trust; None if they name neither a head nor a chain."""
    from cmfl.verifying import trusted_head

    if head is not None:
        return trusted_head(head)
    if where.rpc_url is not None and where.address is None:
        raise ConfigurationError("--rpc-url needs --address: the contract that is trusted")
    if where.rpc_url is None and (where.remote is not None or not where.chain_file.exists()):
        return None
    with opened_ledger(where) as ledger:
        return _trust(ledger, round_number, None)
