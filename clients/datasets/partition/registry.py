"""The partitioners by name; a new one needs its file and one line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clients.datasets.partition.dirichlet import DirichletPartition
from clients.datasets.partition.division import Partition
from clients.datasets.partition.iid import IidPartition
from clients.datasets.partition.natural import NaturalPartition
from clients.datasets.partition.quantity import QuantityPartition
from clients.datasets.partition.shards import ShardsPartition
from clients.datasets.settings_table import parse_settings
from ledger.protocol.errors import ConfigurationError

PARTITIONS: dict[str, type[Partition]] = {
    "natural": NaturalPartition,
    "iid": IidPartition,
    "dirichlet": DirichletPartition,
    "shards": ShardsPartition,
    "quantity": QuantityPartition,
}


def partition_of(
    values: Mapping[str, Any], *, has_owners: bool, has_classes: bool = True
) -> Partition:
    """Return the partitioner of a settings table.

    Args:
        values: the table; the default name is "natural", or without owners "dirichlet", which
            divides classes, or "iid" where samples have no class.
        has_classes: whether a sample's label is its class.
    """
    pooled = "dirichlet" if has_classes else "iid"
    name = values.get("name", "natural" if has_owners else pooled)
    if name not in PARTITIONS:
        raise ConfigurationError(
            f"data.partition.name: unknown partition {str(name)[:80]!r}; known are "
            f"{', '.join(PARTITIONS)}"
        )
    return parse_settings(PARTITIONS[name], values, "data.partition")
