"""`cmfl verify`: proofs of single clients, rounds and round bundles, checked on this side."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from cli.codes import FAILED, INCOMPLETE
from cli.console import AsJson, print_json, print_line
from cli.options import DEFAULT_HOME, Address, ChainId, Head, HomeFolder, RpcUrl, RunName
from cli.where import Where
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledger.audit.bundles.verification import RoundVerification
    from ledger.audit.proofs.proof import ClientProof
    from ledger.audit.proofs.steps import VerificationStep
    from ledger.audit.proofs.trust import Trusted
    from ledger.audit.proofs.verification import Verification
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.types import ClientId

app = typer.Typer(help="Check a client's part, a round or a bundle.", no_args_is_help=True)

RoundNumber = Annotated[
    int, typer.Option("--round", min=1, max=2**32 - 1, help="Number of the round.")
]
Proof = Annotated[
    Path | None,
    typer.Option("--proof", help="A proof that somebody sent; else it is made from the home."),
]
Blobs = Annotated[
    str | None,
    typer.Option("--blobs", help="Where the blobs are, a URL or a folder; else in the home."),
]


@app.command("client")
def client(
    round_number: RoundNumber,
    client_index: Annotated[
        int, typer.Option("--client", min=0, max=2**32 - 1, help="Index of the client.")
    ],
    proof: Proof = None,
    head: Head = None,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    rpc_url: RpcUrl = None,
    address: Address = None,
    chain_id: ChainId = None,
    blobs: Blobs = None,
    json: AsJson = False,
) -> None:
    """Check what became of a client in a round: was its update used, and why or why not.

    A proof is held against --head, a head that was kept, or against the contract on a chain that is
    trusted: --rpc-url with --address, or the home's own. Exit code 0: proven. 1: the proof is
    contradicted. 3: something could not be checked.
    """
    from ledger.audit.proofs.verification import verify_proof
    from ledger.protocol.types import ClientId

    where, who = Where(home, run, address, rpc_url, chain_id, blobs), ClientId(client_index)
    if proof is not None:
        found, trusted = _sent(proof), _trusted(where, round_number, head)
    else:
        found, trusted = _made(where, round_number, who, head)
    result = verify_proof(found, round_number, who, trusted)
    if not json:
        print_line(result.sentence, bold=True)
        _show_steps(result.steps)
    _end(result, json=json)


@app.command("round")
def round_(
    round_number: Annotated[int, typer.Argument(min=1, max=2**32 - 1, help="Of the round.")],
    head: Head = None,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    rpc_url: RpcUrl = None,
    address: Address = None,
    chain_id: ChainId = None,
    blobs: Blobs = None,
    json: AsJson = False,
) -> None:
    """Check one round by the ten steps of an audit, from chain and blobs.

    Exit code 0: everything was checked and is true. 1: a contradiction. 3: something could not be
    checked.
    """
    from ledger.audit.bundles.maker import make_bundle
    from ledger.audit.bundles.verification import verify_bundle
    from ledger.audit.proofs.trust import read_facts

    where = Where(home, run, address, rpc_url, chain_id, blobs)
    with opened_ledger(where) as ledger:
        bundle = make_bundle(ledger, where.published(), round_number, whole=head is not None)
        trusted = _kept(head) if head is not None else read_facts(ledger, round_number)
    _show_round(verify_bundle(bundle, where.published(), trusted), json=json)


@app.command("bundle")
def bundle(
    file: Annotated[Path, typer.Argument(help="A bundle, as cmfl export bundle writes it.")],
    head: Head = None,
    home: HomeFolder = DEFAULT_HOME,
    run: RunName = None,
    rpc_url: RpcUrl = None,
    address: Address = None,
    chain_id: ChainId = None,
    json: AsJson = False,
) -> None:
    """Check the round in a bundle by the ten steps of an audit, with nothing but the file.

    It is held against --head, a head that was kept, or against the contract on a chain that is
    trusted: --rpc-url with --address, or the home's own. Exit code 0: everything was checked and is
    true. 1: a contradiction. 3: something could not be checked.
    """
    from ledger.audit.bundles.container import open_bundle
    from ledger.audit.bundles.document import read_manifest
    from ledger.audit.bundles.verification import verify_bundle

    where = Where(home, run, address, rpc_url, chain_id)
    try:
        with open_bundle(file) as parts:
            found = read_manifest(parts.manifest, parts)
            trusted = _trusted(where, found.ground.round, head)
            result = verify_bundle(found, parts, trusted)
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    _show_round(result, json=json)


def _show_round(result: RoundVerification, *, json: bool) -> NoReturn:
    from ledger.audit.report import finding_line, step_lines

    if not json:
        print_line(result.sentence, bold=True)
        _show_steps(result.steps)
        for step in result.audit:
            for line in step_lines(step):
                print_line(f"  {line}")
        for finding in result.findings:
            print_line(f"  {finding_line(finding)}")
    _end(result, json=json)


def _show_steps(steps: tuple[VerificationStep, ...]) -> None:
    """Print each step with what was expected and what was computed."""
    from ledger.audit.proofs.sentences import STEPS

    for step in steps:
        print_line(f"  {_MARKS[step.is_ok]}  {step.name}: {STEPS[step.name]}")
        print_line(f"      expected {_text(step.expected)}")
        print_line(f"      computed {_text(step.computed)}")


def _end(result: Verification | RoundVerification, *, json: bool) -> NoReturn:
    """Print what is not proven, or all as JSON, and end with the verdict's exit code."""
    from ledger.audit.codes import Outcome
    from ledger.audit.proofs.sentences import CAVEATS

    if json:
        print_json(result.as_dict())
    else:
        for caveat in result.caveats:
            print_line(f"  note: {CAVEATS[caveat]}")
    codes = {Outcome.PASSED: 0, Outcome.FAILED: FAILED, Outcome.INCOMPLETE: INCOMPLETE}
    raise typer.Exit(codes[result.outcome])


_MARKS = {True: "ok", False: "NO", None: "? "}


def _text(value: object) -> str:
    match value:
        case None:
            return "(not known here)"
        case tuple():
            return " ".join(map(_text, value)) or "(none)"
        case _:
            return str(value) or "(nothing)"


def _sent(path: Path) -> ClientProof:
    """Return the proof in a file, of which no more is read than a proof can have.

    Raises:
        ConfigurationError: it cannot be read; names the file.
    """
    from ledger.audit.proofs.document import read_proof
    from ledger.audit.proofs.proof import MAX_PROOF_BYTES
    from ledger.home import read_file

    try:
        return read_proof(read_file(path, MAX_PROOF_BYTES))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error


@contextmanager
def opened_ledger(where: Where) -> Iterator[CommitteeLedger]:
    """Open the contract on one view of its chain."""
    from ledger.chain.contract.committee_ledger import CommitteeLedger

    with where.reader() as chain:
        found = where.ledger(chain)
        with chain.snapshot() as view:
            yield CommitteeLedger(view, found.address, found.from_block)


def _made(
    where: Where, round_number: int, who: ClientId, head: str | None
) -> tuple[ClientProof, Trusted]:
    """Return a proof out of chain and blobs, and what it is held against."""
    from ledger.audit.proofs.maker import make_proof
    from ledger.audit.proofs.trust import read_facts

    with opened_ledger(where) as ledger:
        whole = head is not None
        made = make_proof(ledger, where.published(), round_number, who, whole=whole)
        return made, _kept(head) if head is not None else read_facts(ledger, round_number)


def _trusted(where: Where, round_number: int, head: str | None) -> Trusted | None:
    """Return what a file is held against that somebody sent: a head, a contract, or nothing.

    Raises:
        ConfigurationError: a node is named, and no contract.
    """
    from ledger.audit.proofs.trust import read_facts

    if head is not None:
        return _kept(head)
    if where.rpc_url is not None and where.address is None:
        raise ConfigurationError("--rpc-url needs --address: the contract that is trusted")
    if where.rpc_url is None and not where.chain_file.exists():
        return None
    with opened_ledger(where) as ledger:
        return read_facts(ledger, round_number)


def _kept(head: str) -> Trusted:
    from ledger.audit.proofs.trust import TrustedHead
    from ledger.protocol.types import Digest

    return TrustedHead(Digest(bytes.fromhex(head.removeprefix("0x"))))
