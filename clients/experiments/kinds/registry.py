"""The kinds of method by name: a new one takes its module and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.experiments.kinds.method_kind import MethodKind
    from clients.experiments.rows import MethodKindName

KINDS: dict[MethodKindName, str] = {
    "cmfl": "clients.experiments.kinds.cmfl",
    "federated": "clients.experiments.kinds.federated",
    "brain-torrent": "clients.experiments.kinds.brain_torrent",
    "gossip": "clients.experiments.kinds.gossip",
    # The paper's theorem is part of the repository, not of the installed package.
    "theorem": "benchmarks.paper.theorem.method_kind",
}
"""The module of each kind, with the functions of `MethodKind`."""


def kind_named(name: MethodKindName) -> MethodKind:
    """Return a kind of method; refuse one whose module is not installed."""
    try:
        return cast("MethodKind", import_module(KINDS[name]))
    except ModuleNotFoundError as error:
        if error.name is None or not KINDS[name].startswith(error.name):
            raise
        raise ConfigurationError(
            f"kind {name!r} needs {KINDS[name]}, which is not installed: run it in a checkout of "
            f"the repository"
        ) from error
