"""CMFL: federated learning whose every decision a committee makes and a smart contract enforces.

    import cmfl

    run = cmfl.run("digits", strategy=3, malicious_rate=0.3, attack="back-gradient", seed=7)

    run.rounds                      # a row for each round
    run.rounds[7].explain()         # one round in plain words
    assert cmfl.audit(run).passed   # everything recomputed from the chain and the blobs

Runs:           `run`, `open`, `connect`, `runs`, `audit`; the types `Run`, `Round`, `Audit`.
Own parts:      `Data`, and any model class or function given to `run` or `compare`.
Comparisons:    `compare`, `sweep`; the type `Comparison`.
Proofs:         `Round.prove` and `verify`; the types `Proof`, `Verification`.
Training:       `verify_training` repeats updates bit for bit, `coverage` shows which ones auditors
                have repeated; the types `TrainingVerification` and `Coverage`.
Plain arrays:   the modules `cmfl.rules` and `cmfl.aggregators`.
Errors:         `CmflError`; `ConfigurationError`, its subclass, is about the arguments.

To import this package costs little: torch, web3 and the others are loaded by the call that needs
them. It refuses to start if `ledger`, `clients`, `api` or `contracts` is another project's module
(`cmfl.import_guard`).
"""

from cmfl import import_guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clients.datasets.own_data import Data
    from cmfl import aggregators, rules
    from cmfl.auditing import Audit, Verification, audit, verify
    from cmfl.comparison import Comparison, compare, sweep
    from cmfl.display import Table
    from cmfl.recorded import (
        Explanation,
        Proof,
        Round,
        Rounds,
        Run,
        connect,
        open,  # noqa: A004 - read as cmfl.open
        runs,
    )
    from cmfl.replaying import Coverage, TrainingVerification, coverage, verify_training
    from cmfl.simulating import run
    from ledger.protocol.errors import CmflError, ConfigurationError

    __version__: str

__all__ = [
    "Audit",
    "CmflError",
    "Comparison",
    "ConfigurationError",
    "Coverage",
    "Data",
    "Explanation",
    "Proof",
    "Round",
    "Rounds",
    "Run",
    "Table",
    "TrainingVerification",
    "Verification",
    "aggregators",
    "audit",
    "compare",
    "connect",
    "coverage",
    "open",
    "rules",
    "run",
    "runs",
    "sweep",
    "verify",
    "verify_training",
]

_MODULES = {
    "clients.datasets.own_data": "Data",
    "cmfl.auditing": "Audit Verification audit verify",
    "cmfl.comparison": "Comparison compare sweep",
    "cmfl.display": "Table",
    "cmfl.recorded": "Explanation Proof Round Rounds Run connect open runs",
    "cmfl.replaying": "Coverage TrainingVerification coverage verify_training",
    "cmfl.simulating": "run",
    "ledger.protocol.errors": "CmflError ConfigurationError",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each public name that is no module itself."""

import_guard.require_own_modules()


def __getattr__(name: str) -> object:
    """Return a public name, and import its module now (PEP 562)."""
    import importlib

    if name in {"aggregators", "rules"}:
        return importlib.import_module(f"cmfl.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("cmfl-ledger")
    if name not in _PLACES:
        raise AttributeError(f"module 'cmfl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
