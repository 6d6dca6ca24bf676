"""`cmfl watch`: the open round of a live federation, a line for each change."""

from __future__ import annotations

import time
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from cmfl.commands.console import AsJson, complain, print_line
from cmfl.commands.options import Address, Api, ApiTokenFile, ChainId, RunName
from cmfl.commands.streams import results
from cmfl.where import RemoteService, deployment_at
from ledger.protocol.errors import ConfigurationError, ServiceError

if TYPE_CHECKING:
    from api.client.deployment import RemoteDeployment
    from api.schemas.federation import ActiveClient, FederationAnswer, OpenRound, PacedRound

AWAY_SECONDS = 60.0
"""Without an answer for this time, the service counts as gone."""

STILL_SECONDS = 60.0
"""Without a block for this time, the chain counts as stalled."""

MOST_NAMED = 12
"""Late clients named in one line."""

Poll = Annotated[
    float, typer.Option("--poll", min=0.1, max=3_600, help="Seconds between two questions.")
]


def watch(
    api: Api = None,
    api_token_file: ApiTokenFile = None,
    run: RunName = None,
    address: Address = None,
    chain_id: ChainId = None,
    poll: Poll = 1.0,
    json: AsJson = False,
) -> None:
    """Follow the open round of a live federation: its stage, and who is late.

    Polls a service with a mailbox (cmfl serve --mailbox), until the run is finished, Ctrl-C, or no
    answer for a minute.
    """
    remote = RemoteService.of(api, api_token_file)
    if remote is None:
        raise ConfigurationError("--api: name a service with a mailbox (cmfl serve --mailbox)")
    deployment = deployment_at(remote.service(), chain_id, address, run)
    before: FederationAnswer | None = None
    last_line, still = "", _Stillness()
    while before is None or before["stage"] != "finished":
        if before is not None:
            time.sleep(poll)
        answer = _poll(deployment, poll)
        block = answer["as_of"]
        if answer["stage"] != "finished" and still.is_news(block["hash"], time.monotonic()):
            complain(f"no block for {STILL_SECONDS:g} s: {block['number']} is the newest")
        for line in _ended(answer, before):
            if not json:
                print_line(line)
        if (line := line_of(answer)) != last_line:
            last_line = line
            if json:
                # Escaped: a service may send control sequences of a terminal.
                results().write(dumps(answer) + "\n")
                results().flush()
            else:
                print_line(line)
        before = answer


def _poll(deployment: RemoteDeployment, poll: float) -> FederationAnswer:
    """Return an answer; a service that is away for a moment is asked again."""
    from api.client.connection import ServiceProblemError

    since: float | None = None
    while True:
        try:
            return deployment.federation()
        except ServiceError as error:
            if isinstance(error, ServiceProblemError) and error.status < 500:
                raise
            now = time.monotonic()
            if since is None:
                since = now
                complain(f"{error}; retrying for {AWAY_SECONDS:g} s")
            elif now - since >= AWAY_SECONDS:
                raise
        time.sleep(poll)


class _Stillness:
    """Detection of a stalled chain."""

    def __init__(self) -> None:
        self._newest = ""
        self._since = 0.0
        self._is_reported = False

    def is_news(self, newest: str, now: float) -> bool:
        """Return whether the chain has stalled since the last call."""
        if newest != self._newest:
            self._newest, self._since, self._is_reported = newest, now, False
        is_still = now - self._since >= STILL_SECONDS
        is_new, self._is_reported = is_still and not self._is_reported, is_still
        return is_new


def line_of(answer: FederationAnswer) -> str:
    """Return the status of a federation, without the time: equal lines for equal status."""
    open_round = answer["open"]
    if open_round is None:
        return f"{answer['stage']}: no round is open"
    parts = [f"round {open_round['round']}: {_stage(open_round)}"]
    late = {
        client["client"]: client
        for client in open_round["clients"]
        if client["late_since"] is not None
    }
    if late:
        named = [_awaited(late[client]) for client in open_round["late"] if client in late]
        rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        parts.append(f"late: {', '.join(named[:MOST_NAMED])}{rest}")
    if not answer["mailbox"]["read"]:
        parts.append("the mailbox cannot be read as a whole")
    return "; ".join(parts)


def _stage(open_round: OpenRound) -> str:
    stage = open_round["stage"]
    clients = [each for each in open_round["clients"] if each["role"] != "empty_seat"]
    committed = sum(client["committed_block"] is not None for client in clients)
    if stage == "committing":
        window = open_round["window_block"]
        return f"{committed} of {len(clients)} committed, until block {window}"
    view = open_round["view"]
    if view is not None:
        return f"{view['phase']}, view {view['number'] + 1}, primary {view['primary']}"
    if stage == "exhausted":
        return f"no view is left, may be abandoned from block {open_round['deadline_block']} on"
    if stage == "deciding":
        return "both votes are certified, the decision is pending"
    published = sum(client["payload"] is not None for client in clients)
    return f"{stage}, {published} of {committed} payloads published"


def _awaited(client: ActiveClient) -> str:
    return f"{client['client']} ({', '.join(awaited['act'] for awaited in client['awaited'])})"


def _ended(answer: FederationAnswer, before: FederationAnswer | None) -> list[str]:
    """Return a line for each round that has ended since the last answer, oldest first."""
    if before is None:
        return []
    earlier = {each["round"] for each in before["rounds"] if each["ended"] is not None}
    new = [
        each
        for each in answer["rounds"]
        if each["ended"] is not None and each["round"] not in earlier
    ]
    return [_end(each) for each in reversed(new)]


def _end(paced: PacedRound) -> str:
    views = paced["views"]
    in_views = "" if views is None else f" in views {views[0] + 1} and {views[1] + 1}"
    return f"round {paced['round']}: {paced['status']}{in_views}, after {paced['seconds']} s"
