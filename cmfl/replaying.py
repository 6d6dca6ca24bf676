"""Repeated training of updates, and the coverage that auditors reached."""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmfl.arguments import (
    LIST,
    WHOLE,
    checked,
    first_and_last,
    naming_extras,
    require,
    require_each,
)
from cmfl.auditing import audited_target
from cmfl.display import Table, tracking
from cmfl.recorded import Run
from cmfl.where import Target, open_deployment
from ledger.chain.contract.deploy import deployed_document, deployed_domain
from ledger.chain.contract.ledger import read_run_manifest
from ledger.history.training import TrainingAnswer, counting_only, training_coverage
from ledger.io.home import Home, read_text
from ledger.io.parsing import MAX_TOML_BYTES, parse_toml
from ledger.protocol.canonical import MAX_DOCUMENT_BYTES
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import eip55, sha256
from ledger.protocol.errors import BlobError, ChainError, CmflError, ConfigurationError
from ledger.protocol.signing import KeySigner, data_salt
from ledger.storage.http import AUDITOR, UploadSigner
from ledger.storage.opening import mailbox_at, require_folders

if TYPE_CHECKING:
    from clients.replay.replay_inputs import EnvironmentOf, RecordedRun, ReplayRequest
    from clients.replay.results import ComparedAttestation, TrainingReplay


MOST_JOBS = 256

_log = logging.getLogger(__name__)


class TrainingVerification:
    """The result of repeating updates: all verdicts, and the environment of each."""

    def __init__(self, result: TrainingReplay) -> None:
        self.result = result

    @property
    def verdict(self) -> str:
        """Return "other" if any update is, else "not checkable" if any is, else "same"."""
        return str(self.as_dict()["verdict"])

    @property
    def passed(self) -> bool:
        """True if every chosen update is the same, bit for bit."""
        return self.verdict == "same"

    @property
    def counts(self) -> dict[str, int]:
        """Number of updates by verdict: same, other, not checkable."""
        return self.result.counts

    @property
    def updates(self) -> Table:
        """The updates: round, client, verdict, reason, distances."""
        return Table(update.as_dict() for update in self.result.updates)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data, as `cmfl verify training --json` prints it."""
        return self.result.as_dict()

    def __repr__(self) -> str:
        return f"<cmfl.TrainingVerification {self.result.sentence}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.result.sentence)}</p>{self.updates._repr_html_()}"


@checked
def verify_training(
    run: Run | str | Path | None = None,
    *,
    name: str | None = None,
    round: int | None = None,  # noqa: A002 - read as verify_training(..., round=3)
    rounds: Sequence[int] | None = None,
    client: int | Sequence[int] = (),
    sample: int | None = None,
    seed: int = 0,
    data: str | Path | None = None,
    mailbox: str | Path | None = None,
    salts: Mapping[int, bytes] | None = None,
    poisoned: bool = False,
    trained_here: bool = False,
    settings: Sequence[str] = (),
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
    blobs: str | Path | None = None,
    device: str = "cpu",
    jobs: int = 1,
    log: str | Path | None = None,
    progress: bool | None = None,
) -> TrainingVerification:
    """Repeat updates of a run bit for bit, from chain, blobs and the owners' data.

    Args:
        run: run, named as for `cmfl.audit`, with name, rpc_url, address, chain_id and blobs.
        round: the one round; None for all that have ended.
        rounds: first and last round, instead of `round`.
        client: an index, or several; none for all.
        sample: number of updates that are drawn among these; None for all of them.
        seed: seed of the draw.
        data: file or folder of the samples; None for bundled ones, or the home's own.
        mailbox: URL or folder of a federation's mailbox with its clients' environments; None for
            the mailbox of the blobs.
        salts: 32 bytes each by client, to compare owners' samples with their digests.
        poisoned: True if a simulation's attackers poison their samples again.
        trained_here: True to treat updates without a recorded environment as trained in this
            machine's environment class, like updates of a run that was played here.
        settings: `section.key=value` of this machine, such as `model.name=net.py:Net` for a model
            of the owner's own, whose code is run, or `machine.isa=avx2` to repeat under a cap of
            the instruction set. The default is the cap that all recorded environments name.
        device: cpu, cuda, cuda:N or auto.
        jobs: processes that train; over 1, or under a cap, a script needs the usual
            `if __name__ == "__main__":`.
        log: file of results, which an interrupted replay goes on from.
        progress: True to show progress; None to show it at a terminal or in a notebook.

    Raises:
        ConfigurationError: run or updates are ambiguous, or an argument is wrong.
        ChainError: the chain cannot be read.
    """
    from clients.replay.replay_inputs import ReplayRequest

    bounds = None if round is None else (round, round)
    if rounds is not None:
        if round is not None:
            raise ConfigurationError("round= and rounds= exclude each other; give one")
        bounds = first_and_last(rounds)
    clients = [client] if isinstance(client, int) else client
    require(LIST, client=clients)
    require_each(WHOLE, "client", clients)
    target = audited_target(run, name, rpc_url, address, chain_id, blobs)
    request = ReplayRequest(
        rounds=bounds,
        clients=tuple(map(int, clients)),
        sample=sample,
        seed=seed,
        data=None if data is None else Path(data),
        mailbox=None if mailbox is None else str(mailbox),
        salts=salts or {},
        poisoned=poisoned,
        trained_here=trained_here,
        settings=tuple(settings),
        device=device,
        jobs=jobs,
        log=None if log is None else Path(log),
    )
    with tracking("training, updates", shown=progress) as show:
        return TrainingVerification(replay_target(target, request, show))


def replay_target(
    target: Target, request: ReplayRequest, on_progress: Callable[[int, int], None]
) -> TrainingReplay:
    """Repeat updates of a run; `on_progress` takes the updates that are done, and their number."""
    from clients.replay.results import ResultFile
    from clients.replay.training_replay import replay_run

    _require_request(request)
    if request.mailbox is not None and request.attests is None:
        require_folders("mailbox", request.mailbox)
    place = request.mailbox or target.mailbox_place()
    if request.attests is not None:
        if place is None:
            raise ConfigurationError("--sign: name the mailbox for the attestations with --mailbox")
        mailbox_at(place)  # so that a wrong name is refused before anything is trained
    log = None if request.log is None else ResultFile(request.log)
    run, salts = _recorded(target, request)
    data = request.data or _data_of_home(target, run.document)
    request = replace(request, data=data, salts=salts)
    recorded = _environments(target, run, place)
    result = replay_run(run, target.published(), request, recorded, log, on_progress)
    if request.poisoned or place is None:
        return result
    return _attested(place, run, request, result)


def drawn_training(
    target: Target, sample: int, on_progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Return the number of drawn updates by verdict, or the reason why none was repeated."""
    try:
        with naming_extras():
            from clients.replay.replay_inputs import ReplayRequest

            result = replay_target(target, ReplayRequest(sample=sample), on_progress)
    except CmflError as error:
        return {"drawn": 0, "counts": None, "reason": str(error)}
    return {"drawn": len(result.updates), "counts": result.counts, "reason": ""}


def _recorded(target: Target, request: ReplayRequest) -> tuple[RecordedRun, dict[int, bytes]]:
    from clients.replay.replay_inputs import recorded_run
    from clients.worker.process import signers_by_client

    with target.reader() as chain, chain.snapshot() as view:
        history = target.history(view)
        domain = deployed_domain(history.ledger, allow_unknown_creation=True)
        data = target.published().get(history.fixed.config, MAX_DOCUMENT_BYTES)
        document = deployed_document(data, history.fixed)
        owners = signers_by_client(document, list(map(KeySigner, request.keys)))
        own: dict[int, bytes] = {client: data_salt(signer) for client, signer in owners.items()}
        request = replace(request, clients=request.clients or tuple(sorted(own)))
        run = recorded_run(history, domain, document, request)
    return run, own | dict(request.salts)


def _attested(
    place: str, run: RecordedRun, request: ReplayRequest, result: TrainingReplay
) -> TrainingReplay:
    """Return a result with others' attestations, and the failure if its own stay unpublished."""
    from clients.replay.results import compared_attestations, own_attestations

    digest = sha256(encode_run(run.document))
    own = None if request.attests is None else KeySigner(request.attests)
    compared: list[ComparedAttestation] = []
    try:
        compared = compared_attestations(result, digest, mailbox_at(place))
    except (BlobError, OSError) as error:
        _log.info("the mailbox cannot be read for attestations: %s", error)
    if own is not None:
        uploads, published, failure = UploadSigner(result.domain, own, AUDITOR), 0, ""
        try:
            mailbox = mailbox_at(place, uploads)
            for envelope in own_attestations(result, digest, own):
                uploads.round = envelope.round
                mailbox.put(envelope)
                published += 1
        except (BlobError, OSError) as error:
            failure = str(getattr(error, "strerror", None) or error)
        result = replace(result, published=published, unpublished=failure)
    others = (each for each in compared if own is None or each.auditor != own.address)
    return replace(result, attestations=tuple(others))


def _environments(target: Target, run: RecordedRun, place: str | None) -> EnvironmentOf:
    from clients.replay import replay_inputs
    from clients.runs.run_folder import RunFolder

    for paths in Home(target.home).deployed():
        try:
            is_of_run = read_run_manifest(paths).domain() == run.domain
        except ChainError:
            continue  # the files of another run of the home
        if is_of_run and (recorded := RunFolder(paths).environments()):
            return replay_inputs.of_simulation(recorded)
    if place is None:
        return replay_inputs.of_simulation(())
    return replay_inputs.of_mailbox(mailbox_at(place), run.domain, run.document.registry)


def _require_request(request: ReplayRequest) -> None:
    if not 1 <= request.jobs <= MOST_JOBS:
        raise ConfigurationError(f"jobs = {request.jobs}: must be 1 .. {MOST_JOBS}")
    if request.sample is not None and request.sample < 1:
        raise ConfigurationError(f"sample = {request.sample}: must be at least 1")
    if request.seed < 0:
        raise ConfigurationError(f"seed = {request.seed}: must not be negative")
    if request.attests is not None and (request.poisoned or request.trained_here):
        option = "--poisoned" if request.poisoned else "--trained-here"
        raise ConfigurationError(f"--sign with {option}: only recorded training is attested")
    for client, salt in request.salts.items():
        if type(salt) is not bytes or len(salt) != 32:
            raise ConfigurationError(f"salts[{client}]: must be 32 bytes")


def _data_of_home(target: Target, document: RunDocument) -> Path | None:
    """Return where a home's run has its samples, or None; code that the home names is not run."""
    recorded = document.experiment.get("data")
    if target.rpc_url is not None or target.remote is not None or not isinstance(recorded, dict):
        return None
    try:
        configuration = target.run_paths().configuration if "sha256" in recorded else None
        text = "" if configuration is None else read_text(configuration, MAX_TOML_BYTES)
        data = parse_toml(text).get("data")
    except (CmflError, OSError):
        return None
    configured = data.get("path") if isinstance(data, dict) else None
    path = Path(configured) if isinstance(configured, str) and "\0" not in configured else None
    return path if path is not None and path.exists() else None


class Coverage:
    """Updates that attestations cover; `answer` is what `cmfl coverage --json` prints."""

    def __init__(self, answer: TrainingAnswer) -> None:
        self.answer = answer
        self.rounds = answer["first"], answer["last"]
        self.auditors = list(answer["auditors"])

    @property
    def counts(self) -> dict[str, int]:
        """Number of updates by verdict: same, other, disputed, none."""
        return {name: int(count) for name, count in self.as_dict()["counts"].items()}

    @property
    def updates(self) -> Table:
        """A row for each update: round, client, verdict, and the auditors by their verdicts."""
        rows = []
        for update in self.answer["updates"]:
            row: dict[str, Any] = {key: update[key] for key in ("round", "client", "verdict")}
            for verdict in ("same", "other"):
                given = (a["auditor"] for a in update["attestations"] if a["verdict"] == verdict)
                row[verdict] = ", ".join(dict.fromkeys(given))
            rows.append(row)
        return Table(rows)

    @property
    def sentence(self) -> str:
        """The numbers in a sentence."""
        same, other, disputed, none = self.counts.values()
        updates = same + other + disputed + none
        first, last = self.rounds
        return (
            f"{updates - none} of {updates} updates of rounds {first} to {last} attested: "
            f"{same} same, {other} other, {disputed} disputed"
        )

    def to_pandas(self) -> Any:
        """Return the updates as a pandas DataFrame."""
        return self.updates.to_pandas()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return dict(self.answer)

    def __repr__(self) -> str:
        return f"Coverage({self.sentence})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence)}</p>{self.updates._repr_html_()}"


@checked
def coverage(
    run: Run | str | Path | None = None,
    *,
    name: str | None = None,
    rounds: Sequence[int] | None = None,
    auditors: Sequence[str] = (),
    mailbox: str | Path | None = None,
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
    blobs: str | Path | None = None,
) -> Coverage:
    """Return which updates of a run auditors have repeated, by their attestations.

    Anyone can sign with a new key: name the auditors that you trust.

    Args:
        run: run, named as for `cmfl.audit`, with name, rpc_url, address, chain_id and blobs. A
            service reads its own mailbox unless one is named.
        rounds: first and last round; None for all that have ended.
        auditors: addresses whose attestations count; none for all attestations.
        mailbox: URL or folder with the attestations; None for the mailbox of the blobs.

    Raises:
        ConfigurationError: run or mailbox is ambiguous, or an argument is wrong.
        ChainError: the chain cannot be read, or an address is invalid.
        BlobError: the mailbox cannot be read.
        ServiceError: the service does not answer as it should.
    """
    bounds = None if rounds is None else first_and_last(rounds)
    place = None if mailbox is None else str(mailbox)
    elsewhere = (rpc_url, address, chain_id, blobs, mailbox)
    if isinstance(run, Run) and name in {None, run.name} and elsewhere == (None,) * 5:
        target = run.target  # a service reads its own chain and mailbox
    else:
        target = audited_target(run, name, rpc_url, address, chain_id, blobs)
    return Coverage(coverage_of(target, bounds, auditors, place))


def coverage_of(
    target: Target, rounds: tuple[int, int] | None, auditors: Collection[str], mailbox: str | None
) -> TrainingAnswer:
    """Return the coverage of the run that a target names; the command and `coverage` share it."""
    trusted = {eip55(each) for each in auditors}
    if target.remote is not None and mailbox is None:
        with open_deployment(target) as deployment:
            first, last = rounds or (None, None)
            return counting_only(deployment.training(first, last), trusted)
    target.require_chain_of_its_own()
    if mailbox is not None:
        require_folders("mailbox", mailbox)
    place = mailbox or target.mailbox_place()
    assert place is not None, "a service without a named mailbox is asked itself"
    with target.reader() as chain, chain.snapshot() as view:
        history = target.history(view)
        domain = deployed_domain(history.ledger, allow_unknown_creation=True)
        try:
            found = training_coverage(history, domain, mailbox_at(place), rounds or (None, None))
        except OSError as error:
            named = str(error) if error.strerror is None else f"{place}: {error.strerror}"
            raise BlobError(f"mailbox {named}") from error
    return counting_only(found, trusted)
