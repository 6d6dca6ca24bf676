"""The kinds of method by name: a new one takes its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.experiments.kinds import brain_torrent, committee, federated, gossip, theorem

if TYPE_CHECKING:
    from clients.experiments.kinds.played import MethodKind
    from clients.experiments.rows import Kind

KINDS: dict[Kind, MethodKind] = {
    "cmfl": committee,
    "federated": federated,
    "brain-torrent": brain_torrent,
    "gossip": gossip,
    "theorem": theorem,
}
