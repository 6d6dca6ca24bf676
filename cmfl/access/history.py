"""The history of a deployment, from a home's chain or from a service.

Both give the same responses, but for `as_of`, which only a service adds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cmfl.access.defaults import URL_VARIABLE
from cmfl.access.remote import deployment_at
from cmfl.access.target import Target
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from api.client.deployment import RemoteDeployment
    from ledger.history.local_history import LocalHistory


@contextmanager
def open_history(target: Target) -> Iterator[LocalHistory | RemoteDeployment]:
    """Open the history of the deployment that a command's options name."""
    if target.remote is not None:
        with open_deployment(target) as deployment:
            yield deployment
        return
    from ledger.history.local_history import LocalHistory

    with target.reader() as chain:
        yield LocalHistory(target.history(chain))


@contextmanager
def open_deployment(target: Target) -> Iterator[RemoteDeployment]:
    """Open the deployment of a service; no node may be named beside it."""
    require_no_node(target)
    with served_deployment(target) as deployment:
        yield deployment


@contextmanager
def served_deployment(target: Target) -> Iterator[RemoteDeployment]:
    """Open the deployment of a service, whose chain is read elsewhere or not at all."""
    assert target.remote is not None, "the options name a service"
    with target.remote.service() as service:
        yield deployment_at(service, target.chain_id, target.address, target.run)


def require_no_node(target: Target) -> None:
    """Reject a node in addition to a service; one that only a variable names is ignored."""
    if target.rpc_url not in {None, os.environ.get(URL_VARIABLE)}:
        raise ConfigurationError("--rpc-url and --api: give one of them")
