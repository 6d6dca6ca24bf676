"""Options shared by commands, their environment variables, and groups of them.

A typed option is never ignored: one that only a node needs is an error without a node, so that
no user mistakes the home's own chain for one. Variables may be set permanently: CMFL_CHAIN_ID and
CMFL_KEYSTORE only count if a node is named, and commands that use no node ignore them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from cmfl.where import API_SECONDS, API_TOKEN_VARIABLE, HOME, URL_VARIABLE, RemoteService, Target
from ledger.history.fields import Span
from ledger.protocol import types
from ledger.protocol.errors import ChainError, ConfigurationError

if TYPE_CHECKING:
    from cmfl.auditing import Witnesses


KEY_VARIABLE = "CMFL_PRIVATE_KEY"


_HEAD = re.compile(types.PREFIXED_ANY_CASE)
_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")


def _requires(
    is_met: Callable[[Mapping[str, Any]], bool], why: str, *, else_none: bool = False
) -> Callable[[typer.Context, typer.CallbackParam, Any], Any]:
    """Return a check that refuses a typed option without effect; `else_none` drops other values."""

    def check(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
        if is_met(context.params):
            return value
        if _is_typed(context, parameter):
            raise ConfigurationError(f"{parameter.opts[0]} has no effect {why}")
        return None if else_none else value

    return check


for_a_node = _requires(
    lambda given: given.get("rpc_url") is not None,
    f"without --rpc-url or {URL_VARIABLE}, because the home's own chain does not need it",
    else_none=True,
)
_of_a_home = _requires(
    lambda given: given.get("api") is None, "with --api, because the home is not read"
)
_for_a_service = _requires(lambda given: given.get("api") is not None, "without --api")


def _chain_id(
    context: typer.Context, parameter: typer.CallbackParam, value: int | None
) -> int | None:
    """Ignore the variable if no node is named; a typed id also applies to the home's own chain."""
    on_node = context.params.get("rpc_url") is not None
    return value if on_node or _is_typed(context, parameter) else None


def _is_typed(context: typer.Context, parameter: typer.CallbackParam) -> bool:
    source = context.get_parameter_source(parameter.name or "")
    return source is not None and source.name == "COMMANDLINE"


def runs_of_home(context: typer.Context) -> list[str]:
    """Return completions for the name of a run."""
    runs = Path(context.params.get("home") or HOME) / "runs"
    return sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []


def _head(value: str | None) -> str | None:
    if value is not None and not _HEAD.fullmatch(value):
        raise typer.BadParameter("must be a head, 0x and 64 hex digits, as an audit prints it")
    return value


def rounds_between(round_number: int | None, rounds: str | None) -> tuple[int, int] | None:
    """Return the first and the last round of --round or --rounds; None for all."""
    if rounds is None:
        return None if round_number is None else (round_number, round_number)
    if round_number is not None:
        raise ConfigurationError("--round and --rounds exclude each other; give one")
    match = _RANGE.fullmatch(rounds)
    if match is None:
        raise ConfigurationError(
            f"--rounds {rounds[:80]}: must be first and last round, as in 3..7"
        )
    return int(match[1]), int(match[2])


def contract_address(value: str | None) -> str | None:
    """Return a typed address as EIP-55 text."""
    if value is None:
        return None
    from ledger.protocol.encoding import eip55

    try:
        return eip55(value)
    except ChainError as error:
        raise typer.BadParameter(str(error)) from None


HomeFolder = Annotated[
    Path,
    Option(
        "--home", help="Folder of chain, blobs and runs.", envvar="CMFL_HOME", callback=_of_a_home
    ),
]
Api = Annotated[
    str | None,
    "URL of a service to use instead of a home, up to /v1.",
    Option("--api", is_eager=True),
]
ApiTokenFile = Annotated[
    Path | None,
    f"File with the token of the service of --api. Default: {API_TOKEN_VARIABLE}.",
    Option("--api-token-file", callback=_for_a_service),
]
ApiTimeout = Annotated[
    int,
    "Longest time in seconds for one response or blob of --api.",
    Option("--api-timeout", min=1, max=86_400, callback=_for_a_service),
]
BlobsAt = Annotated[
    str | None,
    "Location of the blobs, a URL or a folder. Default: the home.",
    Option("--blobs", callback=_of_a_home),
]
RunName = Annotated[
    str | None,
    "Name of the run; needed if the home has several.",
    Option("--run", autocompletion=runs_of_home),
]
RunToMake = Annotated[str, Option("--run", help="Name of the run.", autocompletion=runs_of_home)]
Address = Annotated[
    str | None, "Contract's address, if there is no manifest.", Option(callback=contract_address)
]
RpcUrl = Annotated[
    str | None,
    "URL of a JSON-RPC node. Default: the home's own chain.",
    Option("--rpc-url", envvar=URL_VARIABLE, is_eager=True),
]
ChainId = Annotated[
    int | None,
    "Expected chain id of the node or the home. The variable applies to a node only.",
    Option("--chain-id", min=1, max=2**64 - 1, envvar="CMFL_CHAIN_ID", callback=_chain_id),
]
MaxFee = Annotated[
    str | None,
    "Highest total price of gas in gwei, base fee plus tip, on a node. Default: 500.",
    Option("--max-fee", envvar="CMFL_MAX_FEE", callback=for_a_node),
]
MaxTip = Annotated[
    str | None,
    "Highest tip in gwei for the block's maker, on a node. Default: 2.",
    Option("--max-tip", envvar="CMFL_MAX_TIP", callback=for_a_node),
]
AllowPredictableSeeds = Annotated[
    bool, "Accept a run of several owners with beacon = none, although its seeds can be chosen."
]
Head = Annotated[
    str | None,
    "Head that an earlier audit printed. The run must contain it.",
    Option("--head", callback=_head),
]

OutFile = Annotated[
    Path,
    "Output file, device or pipe. An existing file is replaced.",
    Option("--out"),
]

Rules = Annotated[
    list[str] | None,
    "Your copy of the file with the run's own distance; may be repeated. It is executed if "
    "its sha256 is in the run document.",
    Option("--rules", metavar="FILE"),
]

ReportFile = Annotated[Path | None, "File of the JSON report, which replaces an existing one."]
Limit = Annotated[int, Option(min=1, max=1000, help="Largest number of entries.")]
Cursor = Annotated[str | None, "`next_cursor` of the previous page of the same query."]
WITNESS_POLICY = (
    "File with known logs, witnesses and a quorum, in the format of c2sp.org/tlog-policy."
)


TsaRoot = Annotated[
    Path | None, "PEM file with certificates of time-stamping authorities that you trust."
]
WitnessPolicyFile = Annotated[Path | None, WITNESS_POLICY]


@dataclass(frozen=True, slots=True)
class WitnessOptions:
    """The witnesses whose cosignatures a run needs."""

    witness_policy: WitnessPolicyFile = None
    checkpoint: Annotated[
        list[str] | None,
        "URL, folder or file of a log's checkpoint, in addition to the policy's URLs; may be "
        "repeated.",
        Option(metavar="PLACE"),
    ] = None
    checkpoint_max_age: Annotated[
        float | None, "Largest age of a cosignature in hours. Default: 24."
    ] = None

    def witnesses(self) -> Witnesses | None:
        """Return the witnesses to ask; None without a policy and checkpoints."""
        from cmfl.auditing import witnesses_of

        places = tuple(self.checkpoint or ())
        return witnesses_of(self.witness_policy, places, self.checkpoint_max_age)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """A node in place of the home's own chain."""

    rpc_url: RpcUrl = None
    chain_id: ChainId = None

    def chain_of(self, home: Path, run: str | None = None) -> Target:
        """Return the node, or the own chain of a home."""
        return Target(home, run, rpc_url=self.rpc_url, chain_id=self.chain_id)


@dataclass(frozen=True, slots=True)
class ContractOptions:
    """A contract on the home's own chain or on a node's."""

    home: HomeFolder = HOME
    run: RunName = None
    address: Address = None
    rpc_url: RpcUrl = None
    chain_id: ChainId = None

    def target(self) -> Target:
        """Return the named contract, also by options of groups that extend this one."""
        given = dataclasses.asdict(self)
        remote = RemoteService.of(
            given.get("api"), given.get("api_token_file"), given.get("api_timeout", API_SECONDS)
        )
        return Target(
            *(self.home, self.run, self.address, self.rpc_url, self.chain_id),
            *(given.get("blobs"), remote),
        )


@dataclass(frozen=True, slots=True)
class HistoryOptions(ContractOptions):
    """A contract whose history a home, a node or a service has."""

    api: Api = None
    api_token_file: ApiTokenFile = None


@dataclass(frozen=True, slots=True)
class RoundRange(Span):
    """Numbers of the rounds to list; all if neither is given."""

    first: Annotated[int | None, Option("--from", min=1, help="First round to list.")] = None
    last: Annotated[int | None, Option("--to", min=1, help="Last round to list.")] = None


@dataclass(frozen=True, slots=True)
class EvidenceOptions(HistoryOptions):
    """A contract whose chain and blobs are read, the blobs from any place or service."""

    blobs: BlobsAt = None
    api_timeout: ApiTimeout = API_SECONDS


@dataclass(frozen=True, slots=True)
class AttestedOptions(EvidenceOptions):
    """A contract whose audit and training count, from chain, blobs and mailbox."""

    mailbox: Annotated[
        str | None, "URL or folder with auditors' verdicts. Default: the location of the blobs."
    ] = None
    rules: Rules = None

    def target(self) -> Target:
        """Return where to read, a service of blobs included."""
        target = EvidenceOptions.target(self)
        target.require_chain_of_its_own()
        if target.remote is not None and self.mailbox is None:
            raise ConfigurationError(
                "--api serves auditors' verdicts without signatures; name the mailbox with "
                "--mailbox"
            )
        return target


@dataclass(frozen=True, slots=True)
class ProvenanceOptions(AttestedOptions):
    """A run as of the end of a round, and the auditors whose verdicts are listed."""

    round_number: Annotated[
        int | None,
        Option("--round", min=1, max=2**32 - 1, help="Round of the model. Default: the last."),
    ] = None
    auditor: Annotated[
        list[str] | None,
        "Address of an auditor whose verdicts are listed; may be repeated. Default: all.",
        Option(metavar="ADDRESS"),
    ] = None
