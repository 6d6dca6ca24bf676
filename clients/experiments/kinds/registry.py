"""The kinds of method by name: a new one takes its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.paper.theorem import method_kind
from clients.experiments.kinds import brain_torrent, cmfl, federated, gossip

if TYPE_CHECKING:
    from clients.experiments.kinds.method_kind import MethodKind
    from clients.experiments.rows import MethodKindName

KINDS: dict[MethodKindName, MethodKind] = {
    "cmfl": cmfl,
    "federated": federated,
    "brain-torrent": brain_torrent,
    "gossip": gossip,
    "theorem": method_kind,
}
