"""A recorded run, its rounds and its proofs, from a home, a node or a service."""

from __future__ import annotations

import html
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, get_args, overload

from cmfl.arguments import SECONDS, checked, first_and_last, require
from cmfl.display import Table, draw_rounds, html_table, text_table, write
from cmfl.where import (
    API_SECONDS,
    RemoteService,
    Target,
    download_proof,
    open_deployment,
    open_history,
    opened_ledger,
    target_on_node,
)
from ledger.audit.proofs.documents import proof_bytes, read_proof
from ledger.audit.proofs.proof import MAX_PROOF_BYTES, ClientProof, stated
from ledger.audit.proofs.recorded import make_proof
from ledger.claims import last_known, recorded_settings, whole_rows
from ledger.history import export
from ledger.history.answers_rounds import FullRound, LocalHistory
from ledger.history.fields import EvidenceKind, Order, RoundQuery, Span
from ledger.io.home import RUN_NAME, Home, RunPaths, naming, read_file, write_named
from ledger.protocol.errors import ConfigurationError, EncodingError
from ledger.protocol.parameters import MAX_CLIENTS
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from api.client import RemoteDeployment


class Proof:
    """An unchecked statement about one client in one round; `data` is its document."""

    def __init__(self, data: bytes) -> None:
        if not isinstance(data, bytes):
            raise ConfigurationError(f"data = {data!r:.80}: must be bytes")
        self.data = data
        self.parsed: ClientProof = read_proof(data)
        self.round = self.parsed.round
        self.client = int(self.parsed.client)

    @property
    def statement(self) -> str:
        """The claim in a sentence; `cmfl.verify` checks it."""
        return stated(self.parsed.round, self.parsed.client, self.parsed.statement)

    @checked
    def save(self, path: str | Path) -> Path:
        """Write the document, and return the path; an existing file is replaced."""
        write_named(Path(path), self.data)
        return Path(path)

    def __repr__(self) -> str:
        return f"<cmfl.Proof, not checked: {self.statement}>"


def make(target: Target, number: int, client: int) -> Proof:
    """Return the proof of a client's part in a round, from chain and blobs or from a service."""
    if client < 0:
        raise ConfigurationError(f"client {client}: must be at least 0")
    who = ClientId(client)
    if target.remote is not None:
        return Proof(download_proof(target, number, who, whole=True)[0])
    with opened_ledger(target) as ledger:
        return Proof(proof_bytes(make_proof(ledger, target.published(), number, who, whole=True)))


def read(path: Path) -> Proof:
    """Return the proof in a file."""
    with naming(path, (OSError, ValueError, EncodingError)):
        return Proof(read_file(path, MAX_PROOF_BYTES))


class Explanation(tuple[str, ...]):
    """Sentences about a round; printed, and shown in a notebook, one below the other."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of a run. A value that a home or service lacks is None.

    The chain records `status`, `ranked`, `accepted` and `views`; the others are claims of the run's
    own files, which no audit checks. Methods raise ConfigurationError for a run in memory.

    Attributes:
        round: its number t, from 1.
        status: "decided", "abandoned" or "open".
        accuracy: accuracy of the model after the round on the test set, in [0, 1].
        loss: mean cross-entropy there; None also where it is not finite.
        floor: accuracy of always answering the most frequent class.
        ranked: number of ranked updates.
        accepted: number of updates that entered the model.
        malicious_trained: attackers among the trainers.
        malicious_served: attackers on the committee.
        malicious_accepted: attackers' updates that entered the model.
        backdoor_success: share of triggered samples taken for a backdoor's target.
        training_loss: mean cross-entropy on all clients' training samples, if it was asked for.
        views: number of views that the slower of the two votes took, at least 1.
        head: head of the ledger after the round, 0x-hex.
    """

    round: int
    status: str
    accuracy: float | None = None
    loss: float | None = None
    floor: float | None = None
    ranked: int | None = None
    accepted: int | None = None
    malicious_trained: int | None = None
    malicious_served: int | None = None
    malicious_accepted: int | None = None
    backdoor_success: float | None = None
    training_loss: float | None = None
    views: int | None = None
    head: str | None = None
    _target: Target | None = field(default=None, repr=False, compare=False)

    def row(self) -> dict[str, Any]:
        """Return the round as a row: a value for each attribute."""
        return {name: getattr(self, name) for name in COLUMNS}

    @checked
    def explain(self) -> Explanation:
        """Return the round in plain words: participants, accepted updates, and reasons.

        The words report chain and record; `cmfl.audit` verifies these.
        """
        with open_history(self._recorded()) as history:
            return Explanation(history.explanation(self.round)["sentences"])

    @checked
    def prove(self, client: int) -> Proof:
        """Return a proof of a client's part in the round; clients are counted from 0."""
        return make(self._recorded(), self.round, client)

    @checked
    def full(self) -> FullRound:
        """Return the round with all its parts, as `cmfl rounds show --json` prints it."""
        with open_history(self._recorded()) as history:
            return history.full_round(self.round)

    @property
    def updates(self) -> Table:
        """The outcome of each sampled trainer's update: client, outcome, rank, distance, reason."""
        return self._part("updates", "client", "outcome", "rank", "distance", "reason")

    @property
    def committee(self) -> Table:
        """The members: place, client, what became of its scores, the phases that it voted in."""
        return self._part("committee", "place", "client", "scores", "voted")

    def _part(self, part: str, *keys: str) -> Table:
        entries: Any = dict(self.full()["parts"])[part]
        return Table({key: entry[key] for key in keys} for entry in entries)

    def _recorded(self) -> Target:
        if self._target is None:
            raise ConfigurationError(
                f"round {self.round}: the memory ledger records no explanation; use "
                "machine.ledger = chain"
            )
        return self._target


COLUMNS = tuple(each.name for each in fields(Round) if not each.name.startswith("_"))
"""The columns of a table of rounds."""


class Rounds:
    """The rounds of a run by their number t from 1: `rounds[7]`, `rounds[-1]`, `rounds[3:6]`."""

    def __init__(self, rounds: Iterable[Round]) -> None:
        self._rounds = {each.round: each for each in rounds}

    @checked
    def at(self, number: int) -> Round:
        """Return the round of a number t, as `rounds[t]`; the last one for -1."""
        with naming("rounds", IndexError):
            return self[number]

    def __len__(self) -> int:
        return len(self._rounds)

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds.values())

    @overload
    def __getitem__(self, number: SupportsIndex) -> Round: ...
    @overload
    def __getitem__(self, number: slice) -> Rounds: ...
    def __getitem__(self, number: SupportsIndex | slice) -> Round | Rounds:
        newest = max(self._rounds, default=0)
        if isinstance(number, slice):
            meant = range(newest + 1)[number]
            return Rounds(self._rounds[n] for n in meant if n in self._rounds)
        if not isinstance(number, SupportsIndex):
            raise TypeError(f"a round must be given by its number (given: {number!r:.80})")
        number = index(number)
        asked = number if number >= 0 else newest + 1 + number
        if asked not in self._rounds:
            there = f"1 to {newest}" if self._rounds else "none"
            raise IndexError(f"there is no round {number}; must be one of {there}")
        return self._rounds[asked]

    def rows(self) -> Table:
        """Return a row for each round."""
        return Table(each.row() for each in self)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each round; see `Round` for its columns."""
        return self.rows().to_pandas()

    def __repr__(self) -> str:
        return text_table(self._shown_columns(), self.rows())

    def _repr_html_(self) -> str:
        return html_table(self._shown_columns(), self.rows())

    def _shown_columns(self) -> list[str]:
        """Return the columns that some round has a value in, but the long heads."""
        known = {name for row in self.rows() for name, value in row.items() if value is not None}
        return [name for name in COLUMNS if name in known - {"head"}]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run as it was when it was read, with the rounds that have opened, ascending.

    In memory it has no `address`, and no `head` before the first round; `total` may be unknown.
    """

    address: str | None
    head: str | None
    total: int | None
    rounds: tuple[Round, ...]

    @property
    def ended(self) -> list[Round]:
        """The rounds that have ended."""
        return [each for each in self.rounds if each.status != "open"]


class Run:
    """A recorded run: what `cmfl.run`, `cmfl.open` and `cmfl.connect` return.

    A run that others are still playing is read again whenever it is asked; a finished one once. The
    `name` of a contract that was found by its address is empty. `target` is where chain, blobs and
    files are, and `rules` the file of its own distance, if this process has played it.
    """

    def __init__(self, target: Target, name: str, rules: tuple[str, ...] = ()) -> None:
        self.target = target
        self.name = name
        self.rules = rules
        self._finished: Snapshot | None = None

    @property
    def home(self) -> Path | None:
        """The folder of chain, blobs and files; None of a run that is read from elsewhere."""
        is_elsewhere = self.target.remote is not None or self.target.address is not None
        return None if is_elsewhere else self.target.home

    @property
    def rounds(self) -> Rounds:
        """The rounds, by their numbers from 1: `run.rounds[7].explain()`."""
        return Rounds(self.snapshot().rounds)

    @property
    def address(self) -> str | None:
        """The contract's address, EIP-55; None on the memory ledger."""
        return self.snapshot().address

    @property
    def head(self) -> str | None:
        """The ledger's head, 0x-hex, which commits to all that was recorded."""
        return self.snapshot().head

    @property
    def accuracy(self) -> float | None:
        """The last accuracy that was measured; None if none was."""
        return last_known([each.accuracy for each in self.snapshot().rounds])

    @property
    def floor(self) -> float | None:
        """The accuracy of always answering the most frequent class; None if it is unknown."""
        return last_known([each.floor for each in self.snapshot().rounds])

    @property
    def clients(self) -> Table:
        """The registered clients, a row each, as `cmfl clients list --json` prints them."""
        if self.address is None:
            raise ConfigurationError(f"{self.name}: the memory ledger records no clients")
        with open_history(self.target) as history:
            page = history.clients(MAX_CLIENTS, None)
        return Table(dict(client) for client in page["clients"])

    def table(
        self, name: str, rounds: Sequence[int] | None = None, kind: EvidenceKind | None = None
    ) -> Table:
        """Return a table, oldest round first, as `cmfl export table` writes it.

        Args:
            name: "rounds", "updates", "participation", or "evidence": the clients that were
                banned, refused or left out, and why.
            rounds: the first and the last round; None for all.
            kind: kind of evidence: "ban", "refused_scores", "incident" or "dropout"; None for all.
        """
        names, kinds = get_args(export.TableName), (None, *get_args(EvidenceKind))
        for value, allowed in ((name, names), (kind, kinds)):
            if value not in allowed:
                rule = f"must be one of {', '.join(map(str, allowed))}"
                raise ConfigurationError(f"{value!r:.80}: {rule}")
        span = Span() if rounds is None else Span(*first_and_last(rounds))
        query = RoundQuery(order=Order.OLDEST, rounds=span, kind=kind)
        with open_history(self.target) as history:
            return Table(row for rows in table_pages(history, name, query) for row in rows)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run by their names, `section.key`; its home alone has them."""
        if self.home is None:
            raise ConfigurationError(f"{self.name}: the settings are only in the run's home")
        texts = recorded_settings(Home(self.home).run(self.name))
        return {name: json.loads(text) for name, text in texts.items()}

    @checked
    def snapshot(self) -> Snapshot:
        """Return the run as it is now."""
        snapshot = self._finished or read_snapshot(self.target, self.name)
        self._finished = snapshot if len(snapshot.ended) == snapshot.total else None
        return snapshot

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each round; see `Round` for its columns."""
        return self.rounds.to_pandas()

    def explain(self, number: int = -1) -> Explanation:
        """Return a round in plain words; the last one if no number is given."""
        return self.rounds[number].explain()

    @checked
    def plot(self, to: str | Path | None = None, *, axes: Axes | None = None) -> Axes:
        """Draw the accuracy over rounds, its floor, and the number of attackers' accepted updates.

        Args:
            to: a file to write the figure to, `run.png` or `run.svg`; None for none.
            axes: axes of matplotlib to draw on; new ones if not given.
        """
        drawn = draw_rounds(self.name or str(self.address), self.rounds.rows(), self.floor, axes)
        write(drawn, to)
        return drawn

    @checked
    def save(self, home: str | Path) -> Run:
        """Copy the run's home, which may be temporary, to a new folder; return the run there."""
        if self.home is None:
            raise ConfigurationError(f"{self.name}: is not in a home that could be copied")
        folder = Path(home)
        if os.path.lexists(folder):
            raise ConfigurationError(f"{folder}: exists; name a new folder")
        with naming(folder, (OSError, ValueError)):
            shutil.copytree(self.home, folder)
        return Run(replace(self.target, home=folder), self.name, self.rules)

    def __repr__(self) -> str:
        return f"<cmfl.Run {_sentence(self)}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(_sentence(self))}</p>{self.rounds._repr_html_()}"


def table_pages(
    history: LocalHistory | RemoteDeployment, name: str, query: RoundQuery
) -> Iterator[list[export.Row]]:
    """Return the rows of a table of `export`, page by page."""
    read: Any = history.evidence
    if name != "evidence":
        read = partial(history.rounds, full=name != "rounds")
    return map(getattr(export, name.upper()).rows, export.pages(partial(read, query)))


def read_snapshot(target: Target, name: str) -> Snapshot:
    """Return the run as it is now, of a service, a chain or the memory ledger."""
    claims: dict[int, dict[str, Any]] = {}
    if target.remote is not None:
        with open_deployment(target) as deployment:
            details, series = deployment.details(), deployment.series()
        columns: dict[str, Any] = dict(series["claimed"] or {})
        for place, number in enumerate(series["round"]):
            claims[number] = {key: values[place] for key, values in columns.items()}
        address, head = deployment.address, details["state"]["head"]
        total = details["contract"]["rounds"]
    else:
        if target.address is None:
            paths = Home(target.home).run(name)
            claims = {row.round: values for row, values in whole_rows(paths)}
            if not paths.manifest.exists():
                return _in_memory(paths, claims)
        with target.reader() as chain:
            ledger = target.ledger(chain)
            address, head = ledger.address, f"0x{ledger.state().head.hex()}"
            total = ledger.deployment().rounds
    query = RoundQuery("rounds", Order.OLDEST)
    with open_history(target) as history:
        entries = history.rounds(query, min(total, 1 << 20), None)["rounds"]
    rounds = tuple(_round(each, claims.get(each["round"], {}), target) for each in entries)
    return Snapshot(address, head, total, rounds)


def _in_memory(paths: RunPaths, claims: dict[int, dict[str, Any]]) -> Snapshot:
    rounds = []
    for row in claims.values():
        status = "decided" if row["decided"] else "abandoned"
        rounds.append(_round({**row, "status": status, "accepted": len(row["accepted"])}, row))
    setting = recorded_settings(paths).get("protocol.rounds")
    head = rounds[-1].head if rounds else None
    return Snapshot(None, head, int(setting) if setting else None, tuple(rounds))


def _round(
    entry: Mapping[str, Any], claims: Mapping[str, Any], target: Target | None = None
) -> Round:
    recorded = {name: entry.get(name) for name in ("ranked", "accepted")}
    recorded["views"] = None if entry["views"] is None else max(entry["views"]) + 1
    others = COLUMNS[2:]  # after round and status
    claimed = {name: claims.get(name) for name in others if name not in recorded}
    return Round(
        round=entry["round"], status=str(entry["status"]), _target=target, **recorded, **claimed
    )


def _sentence(run: Run) -> str:
    snapshot = run.snapshot()
    ended = snapshot.ended
    of = "" if snapshot.total is None else f" of {snapshot.total}"
    parts = [f"{run.name or snapshot.address}: {len(ended)}{of} rounds"]
    if run.accuracy is not None and run.floor is not None:
        parts.append(f"accuracy {run.accuracy:.3f} (floor {run.floor:.3f})")
    known = [each for each in ended if each.malicious_accepted is not None]
    accepted = sum(each.accepted or 0 for each in known)
    if accepted:
        malicious = sum(each.malicious_accepted or 0 for each in known)
        parts.append(f"{malicious} of {accepted} accepted updates were malicious")
    parts.append("not recorded" if snapshot.address is None else f"contract {snapshot.address}")
    if run.target.remote is not None:
        parts.append(f"from {run.target.remote.url}")
    elif run.home is not None:
        parts.append(f"home {run.home}")
    return ", ".join(parts)


@checked
def open(  # noqa: A001 - read as cmfl.open
    home: str | Path | None = None,
    name: str | None = None,
    *,
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
    blobs: str | Path | None = None,
) -> Run:
    """Return a recorded run of a home, or of a contract on a node's chain.

    Nothing is held open: files and chain are read when the run is asked, also while another process
    plays it.

    Args:
        home: folder of chain, blobs and runs.
        name: name of the run; needed where the home has several.
        rpc_url: a node to read in place of the home's own chain, with address, chain_id and blobs
            as for `cmfl.audit`.

    Raises:
        ConfigurationError: there is no such home or run, or several are meant.
        ChainError: the node is unreachable, or has another chain id.
    """
    others = address, chain_id, blobs
    if rpc_url is None:
        if home is None or others != (None, None, None):
            raise ConfigurationError("name a home, or rpc_url=, address= and blobs= together")
        target = target_of(Path(home), name)
        return Run(target, target.run or "")
    if home is not None or address is None or blobs is None:
        raise ConfigurationError("rpc_url= needs address= and blobs=, and excludes a home")
    run = Run(target_on_node(rpc_url, address, chain_id, str(blobs)), name or "")
    run.snapshot()  # refused now, not at the first question
    return run


@checked
def connect(
    url: str,
    name: str | None = None,
    *,
    address: str | None = None,
    chain_id: int | None = None,
    token: str | None = None,
    timeout_seconds: float = API_SECONDS,
) -> Run:
    """Return a run that a service (`cmfl serve`) gives; an audit does not trust the service.

    Args:
        url: URL of the service, without `/v1`.
        name: name of the run; needed where the service has several and no `address` is given.
        address: address of the contract, 0x-hex.
        chain_id: id of its chain; needed where the service has several.
        token: bearer token, if the service requires one.
        timeout_seconds: time limit for one answer.

    Raises:
        ConfigurationError: none or several runs match; the message lists them.
        ServiceError: the service does not answer.
    """
    require(SECONDS, timeout_seconds=timeout_seconds)
    remote = RemoteService(url, token, timeout_seconds)
    target = Target(run=name, address=address, chain_id=chain_id, remote=remote)
    with open_deployment(target) as deployment:
        found = deployment.details()
    served = Target(run=name, address=found["address"], chain_id=chain_id, remote=remote)
    return Run(served, found["run"])


@checked
def runs(home: str | Path) -> Table:
    """Return a row for each run of a home: rounds, accuracy and its floor, attackers, head.

    Accuracy and attackers are claims of the runs' own files; `cmfl.audit` proves the decisions.

    Raises:
        ConfigurationError: there is no such home, or no run in it.
    """
    path = Path(home)
    return Table(_row(Run(Target(path, name), name)) for name in names_in(path))


def _row(run: Run) -> dict[str, object]:
    snapshot = run.snapshot()
    ended = snapshot.ended
    return {
        "run": run.name,
        "ledger": "memory" if snapshot.address is None else "chain",
        "rounds": len(ended),
        "of": snapshot.total,
        "accuracy": run.accuracy,
        "floor": run.floor,
        "accepted": sum(each.accepted or 0 for each in ended),
        "malicious_accepted": sum(each.malicious_accepted or 0 for each in ended),
        "head": snapshot.head,
    }


def target_of(home: Path, name: str | None) -> Target:
    """Return the target of a run in a home."""
    names = names_in(home)
    if name is not None:
        if name not in names:
            raise ConfigurationError(
                f"{home}: there is no run {name!r}; must be one of {', '.join(names)}"
            )
        return Target(home, name)
    if len(names) > 1:
        raise ConfigurationError(f"{home}: has several runs; name one of {', '.join(names)}")
    return Target(home, names[0])


def names_in(home: Path) -> list[str]:
    """Return the names of a home's runs."""
    folder = Home(home).runs
    with naming(home):  # it may be too long
        is_there = folder.is_dir()
    names = [path.name for path in folder.iterdir() if path.is_dir()] if is_there else []
    there = sorted(name for name in names if RUN_NAME.fullmatch(name))
    if not there:
        raise ConfigurationError(f"there is no run in {home}; create one with cmfl run")
    return there
