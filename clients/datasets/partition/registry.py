"""The partitioners by name; a new one needs its file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clients.datasets.partition.dirichlet import DirichletPartition
from clients.datasets.partition.iid import IidPartition
from clients.datasets.partition.natural import NaturalPartition
from clients.datasets.partition.quantity import QuantityPartition
from clients.datasets.partition.shards import ShardsPartition
from clients.datasets.settings_table import parse_settings
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clients.datasets.partition.division import Partition

PARTITIONS: dict[str, type[Partition]] = {
    "natural": NaturalPartition,
    "iid": IidPartition,
    "dirichlet": DirichletPartition,
    "shards": ShardsPartition,
    "quantity": QuantityPartition,
}


def partition_of(values: Mapping[str, Any], *, has_owners: bool) -> Partition:
    """Return the partitioner of a settings table.

    Args:
        values: the table; the default name is "natural", or "dirichlet" without owners.
        has_owners: whether the data have natural clients.

    Raises:
        ConfigurationError: unknown name, or an unknown setting or one out of range.
    """
    name = values.get("name", "natural" if has_owners else "dirichlet")
    if name not in PARTITIONS:
        raise ConfigurationError(
            f"data.partition.name: unknown partition {str(name)[:80]!r}; known are "
            f"{', '.join(PARTITIONS)}"
        )
    return parse_settings(PARTITIONS[name], values, "data.partition")
