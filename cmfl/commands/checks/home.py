"""Checks of a home: its chain, runs, blobs and vote journals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from cmfl.commands.checks.blob_store import check_blobs
from cmfl.commands.checks.check import Check
from cmfl.commands.console import counting
from cmfl.where import Target
from ledger.io.home import RUN_NAME, Home, RunPaths
from ledger.protocol.errors import BlobMissingError, ChainError, CmflError, EncodingError

LARGE_LOG_BYTES = 256 * 2**20


def home_checks(where: Target, *, deep: bool) -> list[Check]:
    """Return the checks of chain, runs, blobs and journals, in their order."""
    folder = Home(where.home).runs
    names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    runs = [RunPaths(folder / name) for name in sorted(names)]
    return [
        ("chain", lambda: _chain(where, deep=deep)),
        *((f"run {run.path.name}", partial(_run, where, run)) for run in runs),
        ("blobs", lambda: check_blobs(where.blobs(), deep=deep)),
        ("vote journals", lambda: _journals(where)),
    ]


def _chain(where: Target, *, deep: bool) -> str:
    from ledger.chain.embedded.file.chain_store import require_one_name

    if not where.chain_file.exists():
        _require_none_noted(where)
        return f"none yet in {where.home}"
    require_one_name(where.chain_file)
    with where.own_reader() as chain, chain.snapshot() as view:
        noted, head = view.acknowledged(), view.head()
        chain_text = f"chain {view.chain_id}, block {head.number}, 0x{head.hash.hex()}"
        if noted is not None:
            there = view.block(noted.number).hash if noted.number <= head.number else None
            if there != noted.hash:
                raise ChainError(
                    f"{chain_text} lacks block {noted.number}, 0x{noted.hash.hex()}, that this "
                    f"home has acknowledged: a restored backup or a damaged file; put the newer "
                    f"one back, or go on from here with cmfl run --resume --accept-rollback"
                )
        if deep:
            with counting("blocks") as show:
                view.verify(execute=True, progress=lambda number: show(number, head.number))
            chain_text += ", every block run again"
        if chain.wal_bytes >= LARGE_LOG_BYTES:
            chain_text += (
                f"; {chain.wal_bytes // 2**20} MiB wait in its write-ahead log, because a reader "
                f"holds an old state: end the audit or service that has run for long"
            )
        return chain_text


def _require_none_noted(where: Target) -> None:
    from ledger.chain.embedded.file.chain_store import read_note

    if (noted := read_note(where.chain_file)) is not None:
        raise ChainError(
            f"{where.chain_file} is gone, though block {noted.number}, 0x{noted.hash.hex()}, was "
            f"acknowledged here: mount its disk, or put the file back with its -wal"
        )


def _run(where: Target, run: RunPaths) -> str:
    from ledger.actors.journal import require_journal
    from ledger.chain.contract.manifest import read_run_manifest, require_unplayed, was_in_memory
    from ledger.chain.round_ledger import ends_after
    from ledger.protocol.ledger_state import LedgerStage, RoundDecided
    from ledger.protocol.types import NO_DIGEST

    if not RUN_NAME.fullmatch(run.path.name):
        raise CmflError("the folder's name is not that of a run: rename it, or take it away")
    if not run.manifest.exists():
        if was_in_memory(run):
            return "was on the memory ledger: no chain has it, and it cannot be taken up again"
        require_unplayed(run)
        return "has no contract yet: cmfl run --resume deploys it, or finds the one that it started"
    manifest = read_run_manifest(run)
    if where.rpc_url is None and not where.chain_file.exists():
        _require_none_noted(where)
        return f"is on chain {manifest.chain_id}: give --rpc-url to look there"
    blobs = where.blobs()
    with where.ledger_of(manifest) as ledger:
        if ledger is None:
            return f"is on chain {manifest.chain_id}, which was not looked at"
        state, deployment = ledger.state(), ledger.deployment()
        # The first model is made again by a resume.
        is_model_missing = state.model != deployment.model and not blobs.has(state.model)
        is_played_here = run.left_by_play() is not None or run.has_rows()
        ends = ends_after(ledger, 0) if is_model_missing else []
    if is_played_here:
        require_journal(run, state, manifest.domain())
        _require_claimed_head(replace(where, run=run.name))
    # Workers elsewhere may publish in another store: then none of the later models is here.
    later = {end.model for end in ends if isinstance(end, RoundDecided)}
    if is_model_missing and (is_played_here or any(map(blobs.has, later))):
        raise BlobMissingError(
            f"blob {state.model.hex()} is missing, the model with which round {state.round} began "
            f"or ended: put it back from a copy; without it an audit stays incomplete, and a run "
            f"that has not ended cannot go on"
        )
    stage = "finished after" if state.stage is LedgerStage.FINISHED else "in"
    found = f"contract {manifest.address}, {stage} round {state.round} of {deployment.rounds}"
    if not is_played_here and (state.round > 1 or state.commitments != NO_DIGEST):
        found += "; its workers play it, each with a vote journal in its own folder"
    if is_model_missing:
        found += ", and no later model among its blobs: the workers use another store"
    return found


def _require_claimed_head(where: Target) -> None:
    """Reject rows that the chain contradicts: a resume would reject them."""
    from cmfl.commands.claimed_head import compare_head, head_message
    from ledger.claims import claimed_run

    name = where.run or ""
    try:
        claimed = claimed_run(Home(where.home).run(name))
    except EncodingError:
        return  # a resume makes damaged rows again
    comparison = compare_head(where, claimed)
    if comparison.contradicts:
        raise ChainError(head_message(name, comparison))


def _journals(where: Target) -> str:
    """Return what the runs' keys have signed: without it they may sign nothing any more."""
    from ledger.actors.journal import count_statements

    counts = [
        f"{path.absolute().parent.name}: {count_statements(path)} statements"
        for path in Home(where.home).journals()
    ]
    return ", ".join(counts) or f"none yet in {where.home}"
