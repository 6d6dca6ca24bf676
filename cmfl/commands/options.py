"""Options shared by commands, and their environment variables.

A typed option is never ignored: one that only a node needs is an error without a node, so that
no user mistakes the home's own chain for one. Variables may be set permanently: CMFL_CHAIN_ID and
CMFL_KEYSTORE only count if a node is named, and commands that use no node ignore them.

A group is a frozen dataclass whose fields are annotated as a command's parameters are. A command
names it as one parameter, and `expand_groups` shows its fields to Typer as options of their own:

    @expand_groups
    def show(source: HistoryOptions, number: Round, json: AsJson = False) -> None: ...
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from cmfl import where
from ledger.protocol import types
from ledger.protocol.errors import ChainError, ConfigurationError


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of its option groups in place of the groups.

    Raises:
        TypeError: two options have one name.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    groups = {p.name: hints[p.name] for p in parameters if dataclasses.is_dataclass(hints[p.name])}

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**values)

    options = [option for p in parameters for option in _options_of(p, hints[p.name])]
    names = [option.name for option in options]
    if len(set(names)) < len(names):
        raise TypeError(f"{command.__name__}: two of the options {names} have one name")
    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _options_of(parameter: inspect.Parameter, kind: Any) -> Iterator[inspect.Parameter]:
    if not dataclasses.is_dataclass(kind):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        return
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        default = field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
            annotation=hints[field.name],
        )


KEY_VARIABLE = "CMFL_PRIVATE_KEY"
URL_VARIABLE = where.URL_VARIABLE
API_TOKEN_VARIABLE = where.API_TOKEN_VARIABLE

DEFAULT_HOME = where.HOME
DEFAULT_RUN = where.RUN

T = TypeVar("T")

_HEAD = re.compile(types.PREFIXED_ANY_CASE)


def _for_a_node(context: typer.Context, parameter: typer.CallbackParam, value: T) -> T | None:
    """Reject a typed option that needs a node if none is named; ignore its variable then."""
    if context.params.get("rpc_url") is not None or not _is_given(context, parameter):
        return value
    if not _is_typed(context, parameter):
        return None
    raise ConfigurationError(
        f"{parameter.opts[0]} has no effect without --rpc-url or {URL_VARIABLE}: the home's own "
        f"chain needs none"
    )


def _chain_id(
    context: typer.Context, parameter: typer.CallbackParam, value: int | None
) -> int | None:
    """Ignore the variable if no node is named; a typed id also applies to the home's own chain."""
    on_node = context.params.get("rpc_url") is not None
    return value if on_node or _is_typed(context, parameter) else None


def _of_a_home(context: typer.Context, parameter: typer.CallbackParam, value: T) -> T:
    """Reject an option of a home if a service is named."""
    if context.params.get("api") is not None and _is_typed(context, parameter):
        raise ConfigurationError(
            f"{parameter.opts[0]} has no effect with --api: nothing of a home is read then"
        )
    return value


def _for_a_service(context: typer.Context, parameter: typer.CallbackParam, value: T) -> T:
    """Reject an option that needs a service if none is named."""
    if context.params.get("api") is None and _is_typed(context, parameter):
        raise ConfigurationError(f"{parameter.opts[0]} has no effect without --api")
    return value


def _is_given(context: typer.Context, parameter: typer.CallbackParam) -> bool:
    return _source(context, parameter) not in {"DEFAULT", "DEFAULT_MAP"}


def _is_typed(context: typer.Context, parameter: typer.CallbackParam) -> bool:
    return _source(context, parameter) == "COMMANDLINE"


def _source(context: typer.Context, parameter: typer.CallbackParam) -> str:
    source = context.get_parameter_source(parameter.name or "")
    return "DEFAULT" if source is None else source.name


def runs_of_home(context: typer.Context) -> list[str]:
    """Return completions for the name of a run."""
    runs = Path(context.params.get("home") or DEFAULT_HOME) / "runs"
    return sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []


def _presets() -> list[str]:
    from importlib.resources import files

    folder = files("clients") / "presets"
    return sorted(Path(entry.name).stem for entry in folder.iterdir())


def _head(value: str | None) -> str | None:
    if value is not None and not _HEAD.fullmatch(value):
        raise typer.BadParameter(
            "a head is 0x and 64 hex digits, as an audit prints it in the line to keep"
        )
    return value


def contract_address(value: str | None) -> str | None:
    """Return a typed address as EIP-55 text.

    Raises:
        typer.BadParameter: it is malformed, or its checksum is wrong.
    """
    if value is None:
        return None
    from ledger.chain.addresses import eip55

    try:
        return eip55(value)
    except ChainError as error:
        raise typer.BadParameter(str(error)) from None


HomeFolder = Annotated[
    Path,
    typer.Option(
        "--home", help="Folder of chain, blobs and runs.", envvar="CMFL_HOME", callback=_of_a_home
    ),
]
Api = Annotated[
    str | None,
    typer.Option(
        "--api",
        help="A service instead of a home: its URL, up to where /v1 begins.",
        is_eager=True,  # the options below and --home ask whether it is there
    ),
]
ApiTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--api-token-file",
        help=f"For --api: the token that the service wants, else {API_TOKEN_VARIABLE} holds it.",
        callback=_for_a_service,
    ),
]
ApiTimeout = Annotated[
    int,
    typer.Option(
        "--api-timeout",
        min=1,
        max=86_400,
        help="For --api: seconds that one answer, or one blob, may take.",
        callback=_for_a_service,
    ),
]
BlobsAt = Annotated[
    str | None,
    typer.Option(
        "--blobs",
        help="Where the blobs are, a URL or a folder; else in the home.",
        callback=_of_a_home,
    ),
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run", help="Which run; needed where the home has several.", autocompletion=runs_of_home
    ),
]
RunToMake = Annotated[
    str, typer.Option("--run", help="Name of the run.", autocompletion=runs_of_home)
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="digits (default, no attackers among the members), robust (against attackers), ...: "
        "cmfl settings presets lists all.",
        autocompletion=_presets,
    ),
]
Config = Annotated[Path | None, typer.Option("--config", help="A TOML file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="section.key=value, over preset or file; cmfl settings has all of them."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", help="The contract, where there is no manifest.", callback=contract_address
    ),
]
RpcUrl = Annotated[
    str | None,
    typer.Option(
        "--rpc-url",
        help="A JSON-RPC node instead of the home's own chain, for which the variable is left "
        "empty.",
        envvar=URL_VARIABLE,
        is_eager=True,  # the options below ask whether it is there
    ),
]
ChainId = Annotated[
    int | None,
    typer.Option(
        "--chain-id",
        min=1,
        max=2**64 - 1,
        help="The chain id that node or home must have; the variable counts for a node only.",
        envvar="CMFL_CHAIN_ID",
        callback=_chain_id,
    ),
]
Keystore = Annotated[
    list[Path] | None,
    typer.Option(
        "--keystore",
        help=f"For a node: encrypted key of the sender, else {KEY_VARIABLE} holds the key.",
        envvar="CMFL_KEYSTORE",
        callback=_for_a_node,
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="For a node: the keystore's password; else asked for.",
        callback=_for_a_node,
    ),
]
Confirmations = Annotated[
    int | None,
    typer.Option(
        "--confirmations",
        min=0,
        max=1000,
        help="For a node: blocks on top of a transaction's own before it counts; 0 if not given.",
        callback=_for_a_node,
    ),
]
MaxFee = Annotated[
    str | None,
    typer.Option(
        "--max-fee",
        help="For a node: most gwei for each gas, base fee and tip together; 500 if not given.",
        envvar="CMFL_MAX_FEE",
        callback=_for_a_node,
    ),
]
MaxTip = Annotated[
    str | None,
    typer.Option(
        "--max-tip",
        help="For a node: most gwei of it as tip for the block's maker; 2 if not given.",
        envvar="CMFL_MAX_TIP",
        callback=_for_a_node,
    ),
]
AllowPredictableSeeds = Annotated[
    bool,
    typer.Option(
        "--allow-predictable-seeds",
        help="Accept a run of several owners with beacon = none, whose seeds can be chosen.",
    ),
]
Head = Annotated[
    str | None,
    typer.Option(
        "--head",
        help="A head that an earlier audit printed: the run must pass through it.",
        callback=_head,
    ),
]

OutFile = Annotated[
    Path,
    typer.Option(
        "--out", help="The file; an existing file is replaced, a device or pipe is written into."
    ),
]

Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Your copy of the file with the run's own distance; may be repeated. "
        "It is run, if its sha256 is the run document's.",
    ),
]

Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")]
Cursor = Annotated[
    str | None, typer.Option(help="`next_cursor` of the page before, from the same query.")
]
