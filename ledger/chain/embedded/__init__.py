"""A chain in this process: py-evm over one SQLite file, one writer, any number of readers.

A reader loads py-evm where it executes a call. py-evm imports the pairing libraries with everything
else, and they compute tables on import, for 0.3 s of CPU time. Placeholders stand for the
precompiled contracts that need them until one is called; results and gas costs stay py-evm's.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from types import ModuleType
from typing import Any

PACKAGE = "eth.precompiles"
DEFERRED: dict[str, tuple[str, ...]] = {
    f"{PACKAGE}.ecadd": ("ecadd",),
    f"{PACKAGE}.ecmul": ("ecmul",),
    f"{PACKAGE}.ecpairing": ("ecpairing",),
    f"{PACKAGE}.bls12_381": (
        "bls12_g1_add",
        "bls12_g1_msm",
        "bls12_map_fp_to_g1",
        "bls12_g2_add",
        "bls12_g2_msm",
        "bls12_map_fp2_to_g2",
        "bls12_pairing_check",
    ),
}
"""Modules of py-evm that import curves, and the precompiled contracts in each."""
_LOCK = threading.Lock()


class DeferredPrecompile:
    """A precompiled contract, imported on its first call; options alone give a copy with them."""

    def __init__(self, module: str, name: str, options: dict[str, int] | None = None) -> None:
        self.module = module
        self.name = name
        self.options = options or {}

    def __call__(self, *computation: Any, **options: int) -> Any:
        chosen = self.options | options
        if not computation:
            return DeferredPrecompile(self.module, self.name, chosen)
        _import_curves()
        return getattr(sys.modules[self.module], self.name)(*computation, **chosen)


def _import_curves() -> None:
    with _LOCK:
        limit, package = sys.getrecursionlimit(), import_module(PACKAGE)
        for module, names in DEFERRED.items():
            if getattr(sys.modules[module], "__file__", None) is not None:
                continue
            del sys.modules[module]
            real = import_module(module)
            # Importing `ecadd` rebinds the package's attribute to the module; restore it.
            for name in names:
                setattr(package, name, getattr(real, name))
        sys.setrecursionlimit(limit)  # py_ecc raises it for the whole process


# Here, as the placeholders have to precede the first import of py-evm.
if PACKAGE not in sys.modules:
    for _module, _names in DEFERRED.items():
        _placeholder = sys.modules[_module] = ModuleType(_module)
        for _name in _names:
            setattr(_placeholder, _name, DeferredPrecompile(_module, _name))
