"""The table of drawn committees in `docs/presets.md`: `python -m benchmarks.committee_risk`."""

from __future__ import annotations

from clients.configuration.committee_risk import SHARES, committee_risks, format_chance
from clients.configuration.loading import load
from clients.configuration.parsing import PRESETS
from clients.experiments.report import markdown

FURTHER = ((60, 21), (60, 25), (300, 43))
"""Clients and members of further rows, which no preset has."""


def risk_table() -> list[str]:
    """Return the table as lines of Markdown: the chances of each preset's first committee."""
    presets: dict[tuple[int, int], list[str]] = {}
    for preset in PRESETS:
        parameters = load(preset).parameters(dimension=1)
        presets.setdefault((parameters.clients, parameters.members), []).append(f"`{preset}`")
    for sizes in FURTHER:
        presets.setdefault(sizes, [])
    rows = []
    for (clients, members), named in presets.items():
        chances = [
            "; ".join(map(format_chance, (risk.half, *risk.blocking.values())))
            for risk in committee_risks(clients, members)
        ]
        rows.append([f"{members} of {clients}", ", ".join(named), *chances])
    return markdown(["C of K", "preset", *(f"{share} % malicious" for share in SHARES)], rows)


if __name__ == "__main__":
    print("\n".join(risk_table()))
