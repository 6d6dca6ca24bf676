"""`cmfl witness` and `cmfl log`: cosign checkpoints, and publish the heads of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cmfl.auditing import policy_in
from cmfl.commands import FAILED, INCOMPLETE, console, options, sender
from cmfl.commands.application import Commands
from cmfl.commands.options import WITNESS_POLICY, ContractOptions, WitnessPolicyFile
from cmfl.commands.process import until_interrupted
from cmfl.commands.sender import KeyFile, KeyPassword
from cmfl.commands.serve import AllowedHosts
from cmfl.where import HOME, URL_VARIABLE, Target, chain_id_of, opened_ledger
from ledger.io.home import naming, read_file, sole_process
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Domain
from ledger.transparency import network, notes
from ledger.transparency import policy as proofs
from ledger.transparency.tree import head_entries, origin_of, read_entries

witness_app = Commands()

WitnessName = Annotated[
    str, Option("--name", help="Name of the witness's key, such as witness.example.org.")
]


@witness_app.command("key")
def witness_key(name: WitnessName, keystore: KeyFile, password_file: KeyPassword = None) -> None:
    """Print the public key of a witness, for policies.

    The key is derived from the keystore's key and this name.
    """
    signer = _signing_key(name, notes.KeyUse.COSIGNATURE, keystore, password_file)
    console.print_line(str(signer.verifier))


@witness_app.command("serve")
def serve_witness(
    name: WitnessName,
    keystore: KeyFile,
    folder: Annotated[Path, "Folder of the witness's state."],
    log: Annotated[
        list[str],
        "Public key of a log to witness, as printed by cmfl log key; may be repeated.",
        Option(metavar="VKEY"),
    ],
    password_file: KeyPassword = None,
    host: Annotated[str, "Address to listen on."] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8701,
    allowed_host: AllowedHosts = None,
) -> None:
    """Cosign checkpoints of logs over HTTP, as specified in c2sp.org/tlog-witness.

    The witness cosigns a checkpoint only if it extends the newest one of the log. Never restore the
    folder from a backup: a witness that has lost its state needs a new key. The server has no TLS:
    use a proxy on an open network.
    """
    from api.http.server import serve_app
    from api.transparency import create_witness

    logs = [notes.parse_vkey(each, notes.KeyUse.NOTE) for each in log]
    signer = _signing_key(name, notes.KeyUse.COSIGNATURE, keystore, password_file)
    with sole_process(folder, "witness.lock"), until_interrupted():
        state = network.WitnessFolder(folder, logs, signer, time.time)
        serve_app(
            *(create_witness(state), host, port),
            lambda url: console.print_line(f"{url} is the witness {signer.verifier}, until Ctrl-C"),
            allowed_host or (),
        )


log_app = Commands()

LogName = Annotated[
    str,
    "Your name for logs, such as example.org/cmfl. The chain and the contract are appended.",
    Option("--name"),
]


@log_app.command("key")
def log_key(
    name: LogName, keystore: KeyFile, password_file: KeyPassword = None, *, source: ContractOptions
) -> None:
    """Print the public key of a run's log, for witnesses and policies.

    The key is derived from the keystore's key, this name and the run.
    """
    with opened_ledger(source.target()) as ledger:
        origin = origin_of(name, ledger.domain())
    signer = _signing_key(origin, notes.KeyUse.NOTE, keystore, password_file)
    console.print_line(str(signer.verifier))


@log_app.command("publish")
def publish(
    name: LogName,
    keystore: KeyFile,
    out: Annotated[Path, "Folder of the log's files."],
    password_file: KeyPassword = None,
    witness_policy: WitnessPolicyFile = None,
    first: Annotated[bool, "Sign without a quorum: the key has not signed anything yet."] = False,
    *,
    source: ContractOptions,
    json: console.AsJson = False,
) -> None:
    """Write the heads of all ended rounds as a log, and have witnesses cosign it.

    Call the command after each round, or from time to time. It only appends to the log. It contacts
    each witness of the policy that has a URL. With a policy, it signs a folder without a checkpoint
    only after a quorum of witnesses has reported the checkpoints they have seen from this key.

    Exit codes: 1, the chain contradicts a head that this key has signed. 3, too few witnesses have
    cosigned, and the current checkpoint stays.
    """
    target = source.target()
    policy = None if witness_policy is None else policy_in(witness_policy)
    # The chain is read under the lock: else rounds that another process publishes meanwhile would
    # seem to be taken back.
    with sole_process(out, "log.lock", "--out"):
        domain, entries = _entries_of(target, is_final=True)
        origin = origin_of(name, domain)
        signer = _signing_key(origin, notes.KeyUse.NOTE, keystore, password_file)
        try:
            publication = network.publish(entries, signer, out, policy, is_first=first)
        except notes.LogConflictError as error:
            console.complain(str(error))
            raise typer.Exit(FAILED) from error
    for failure in publication.failures:
        console.complain(failure)
    checkpoint, cosigned = publication.checkpoint, publication.cosigned
    by = f", cosigned by {', '.join(cosigned)}" if cosigned else ""
    console.print_result(
        {"log": checkpoint.origin, "rounds": checkpoint.size, "root": checkpoint.root}
        | {"cosigned": list(cosigned), "published": publication.is_published},
        [f"{checkpoint.origin} has {checkpoint.size} rounds{by}"],
        as_json=json,
    )
    if not publication.is_published:
        console.complain("this is below the policy's quorum, so the current checkpoint stays")
        raise typer.Exit(INCOMPLETE)


@dataclass(frozen=True, slots=True)
class AnchorChain(sender.CappedSenderOptions):
    """A node of any chain; the variable of a node's URL names the node of the run's own chain."""

    rpc_url: Annotated[str | None, "Node of the anchor's chain.", Option(is_eager=True)] = None
    chain_id: Annotated[
        int | None, "Expected chain id of the anchor's chain.", Option(min=1, max=2**64 - 1)
    ] = None


@log_app.command("anchor")
def anchor(
    out: Annotated[Path, "Folder of anchors, for cmfl audit --anchors."],
    tsa: Annotated[str | None, "URL of a time-stamping authority (RFC 3161)."] = None,
    tsa_root: options.TsaRoot = None,
    home: options.HomeFolder = HOME,
    run: options.RunName = None,
    run_rpc_url: Annotated[
        str | None, "Node of the run's chain. Default: the home's.", Option(envvar=URL_VARIABLE)
    ] = None,
    *,
    chain: AnchorChain,
    json: console.AsJson = False,
) -> None:
    """Anchor the newest final head on another chain (--rpc-url) or at an authority (--tsa).

    On a chain, the head is stored in a transaction from your account to itself. Without
    --confirmations, the chain may still revert the block.
    """
    from ledger.audit import anchored

    url = chain.rpc_url
    if (tsa is None) is (url is None) or (tsa is None) is not (tsa_root is None):
        raise ConfigurationError("an anchor needs --rpc-url, or --tsa with --tsa-root")
    run_chain = None if run_rpc_url is None else chain_id_of(run_rpc_url, None)
    _, entries = _entries_of(Target(home, run, None, run_rpc_url, run_chain), is_final=True)
    if not entries:
        raise ConfigurationError("no round has ended in a final block; nothing to anchor")
    entry = entries[-1]
    with naming(f"--out {out}"):
        out.mkdir(parents=True, exist_ok=True)
    console.require_writable(out / "anchor")  # before a transaction costs anything
    if tsa is not None:
        data = network.time_stamp(tsa, anchored.token_request(entry))
    else:
        with chain.chain(url or "", chain_id_of(url or "", chain.chain_id)) as node:
            sent = node.send(node.sender, entry, anchored.ANCHOR_GAS)
            block, transactions = node.whole_block(sent.block_number)
        data = anchored.transaction_anchor(block, transactions, sent.transaction_hash)
    name = f"round-{len(entries)}-{sha256(data)[:4].hex()}"
    path = out / f"{name}{'.json' if tsa is None else '.tsr'}"
    result = anchored.verified(path, data, None if tsa is None else entry, tsa_root)
    if tsa is not None:
        console.write_result(path.with_suffix(".head"), entry)
    console.write_result(path, data)
    console.print_result(result.as_dict(), [result.sentence], as_json=json)


@log_app.command("serve")
def serve_log(
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder of the log's files.")],
    host: Annotated[str, "Address to listen on."] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8700,
    allowed_host: AllowedHosts = None,
) -> None:
    """Serve the files of a log over HTTP. Any static file server works as well."""
    from api.http.server import serve_app
    from api.transparency import create_static_log

    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}")
    with until_interrupted():
        serve_app(
            *(create_static_log(folder), host, port),
            lambda url: console.print_line(f"{url} serves the log in {folder}, until Ctrl-C"),
            allowed_host or (),
        )


LogPlace = Annotated[str, Argument(metavar="PLACE", help="URL or folder of the log's files.")]
LogKeys = Annotated[list[str], Option("--log", metavar="VKEY", help="Public key of the log.")]


@log_app.command("verify")
def verify(place: LogPlace, log: LogKeys, json: console.AsJson = False) -> None:
    """Check that every file of a log matches its checkpoint, and check the checkpoint's signature.

    Exit codes: 1, a file does not match, or another key has signed. 3, a file is missing.
    """
    _, checkpoint, entries = _read_log(place, log)
    newest = entries[-1].decode("utf-8", "replace").splitlines() if entries else []
    console.print_result(
        {"log": checkpoint.origin, "rounds": len(entries), "root": checkpoint.root},
        [
            f"{checkpoint.origin}: {len(entries)} rounds, and every file matches its hash",
            *(f"  {line}" for line in newest),
        ],
        as_json=json,
    )


@log_app.command("compare")
def compare(
    place: LogPlace, log: LogKeys, *, source: ContractOptions, json: console.AsJson = False
) -> None:
    """Find the first round that differs between a log and a run.

    Exit codes: 1, they differ, the run has fewer ended rounds, or a file of the log does not match.
    3, a file is missing.
    """
    _, checkpoint, entries = _read_log(place, log)
    own, origin = _entries_of(source.target(), is_final=False)[1], checkpoint.origin
    pairs = zip(entries, own, strict=False)
    differs = next((t for t, (theirs, ours) in enumerate(pairs, 1) if theirs != ours), None)
    line = f"{len(entries)} of {len(own)} ended rounds are in the log, and are the same"
    if differs is not None:
        line = f"round {differs} differs in {origin}"
    elif len(own) < len(entries):
        line = f"the run ends with round {len(own)}, {origin} with {len(entries)}"
    rounds = {"log_rounds": len(entries), "rounds": len(own)}
    answer = {"log": origin, **rounds, "first_difference": differs}
    console.print_result(answer, [line], as_json=json)
    if differs is not None or len(own) < len(entries):
        raise typer.Exit(FAILED)


@log_app.command("prove")
def prove(
    place: LogPlace,
    log: LogKeys,
    round_number: Annotated[
        int, Option("--round", min=1, max=2**32 - 1, help="Number of the round.")
    ],
    out: Annotated[Path, "File of the proof, which replaces an existing one."],
) -> None:
    """Write a proof that the head of a round is in a log, for checks offline.

    The proof has the format of c2sp.org/tlog-proof, with all cosignatures of the checkpoint.
    """
    console.require_writable(out)
    note, checkpoint, entries = _read_log(place, log)
    if round_number > len(entries):
        raise ConfigurationError(
            f"--round {round_number}: {checkpoint.origin} has {len(entries)} rounds"
        )
    console.write_result(out, proofs.prove(entries, round_number - 1, note).encoded())
    console.print_written(out, f"proves the head of round {round_number} in {checkpoint.origin}")


@log_app.command("head")
def head(
    proof: Annotated[Path, Argument(help="File written by cmfl log prove.")],
    witness_policy: Annotated[Path, WITNESS_POLICY],
    json: console.AsJson = False,
) -> None:
    """Check a proof of a round's head offline, and print the head for `--head` of other commands.

    Exit codes: 1, a signature or the proof is invalid. 3, too few witnesses have cosigned the log.
    """
    policy = policy_in(witness_policy)
    sent = proofs.parse_proof(read_file(proof, proofs.MAX_PROOF_BYTES))
    try:
        entry, witnesses = proofs.verified_head(sent, policy)
    except (notes.NoteError, notes.ProofError) as error:
        console.complain(f"{proof}: {error}")
        raise typer.Exit(FAILED) from error
    fields = {"round": entry.round, "head": entry.head, "contract": entry.domain.contract}
    by = ", ".join(witnesses) or "no witness"
    console.print_result(
        {**fields, "chain_id": entry.domain.chain_id, "witnesses": list(witnesses)},
        [f"round {entry.round}, cosigned by {by}: --head 0x{entry.head.hex()}"],
        as_json=json,
    )
    if not policy.is_met(witnesses):
        console.complain("this is below the policy's quorum")
        raise typer.Exit(INCOMPLETE)


def _read_log(place: str, log: list[str]) -> tuple[bytes, notes.Checkpoint, list[bytes]]:
    keys = [notes.parse_vkey(each, notes.KeyUse.NOTE) for each in log]
    try:
        note = network.checkpoint_at(place)
        checkpoint = notes.open_checkpoint(note, keys).checkpoint
        return note, checkpoint, read_entries(checkpoint, partial(network.file_at, place))
    except (notes.NoteError, notes.TileError) as error:
        console.complain(f"{network.shown(place)}: {error}")
        raise typer.Exit(FAILED) from error
    except notes.WitnessError as error:
        console.complain(str(error))
        raise typer.Exit(INCOMPLETE) from error


def _entries_of(target: Target, *, is_final: bool) -> tuple[Domain, list[bytes]]:
    with opened_ledger(target) as ledger:
        domain = ledger.domain()
        last = ledger.chain.finalized() if is_final else ledger.chain.head().number
        events = [each.event for each in ledger.recorded_in(ledger.from_block, last)]
    return domain, [entry.encoded() for entry in head_entries(domain, events)]


def _signing_key(
    name: str, use: notes.KeyUse, keystore: list[Path], password_file: Path | None
) -> notes.SigningKey:
    """Return the key of a witness, or of a log by its origin, which follows from a keystore's."""
    if use is notes.KeyUse.COSIGNATURE:
        notes.require_key_name(name)
    secret = sender.keystore_key(sender.only_keystore(keystore), password_file)
    return notes.SigningKey.derived(secret, use, name)
