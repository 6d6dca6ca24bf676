"""Deferred import of py-evm's elliptic curves, which hardly any call needs.

py-evm imports the pairing libraries with everything else, and they compute tables on import: half
of the start time of a read-only command. The precompiled contracts that need them are imported on
their first call; their results and gas costs stay py-evm's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
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


class DeferredPrecompile:
    """A precompiled contract that is imported on its first call.

    A call with options alone returns a copy with these options, as forks set other prices.
    """

    def __init__(self, module: str, name: str, options: dict[str, int] | None = None) -> None:
        """Placeholder for a function."""
        self.module = module
        self.name = name
        self.options = options or {}

    def __call__(self, *computation: Any, **options: int) -> Any:
        """Run the contract, or set options."""
        chosen = self.options | options
        if not computation:
            return DeferredPrecompile(self.module, self.name, chosen)
        _CURVES.install_real()
        return getattr(import_module(self.module), self.name)(*computation, **chosen)


class _Curves(MetaPathFinder, Loader):
    """Import hook with placeholders for deferred modules until one of their functions is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_installed = False

    def defer(self) -> None:
        """Install the placeholders; without effect if py-evm is imported already."""
        if PACKAGE not in sys.modules:
            sys.meta_path.insert(0, self)

    def install_real(self) -> None:
        """Replace the placeholders by the real modules."""
        with self._lock:
            if self._is_installed:
                return
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            limit, package = sys.getrecursionlimit(), import_module(PACKAGE)
            for module, names in DEFERRED.items():
                del sys.modules[module]
                real = import_module(module)
                # Importing `ecadd` rebinds the package's attribute to the module; restore it.
                for name in names:
                    setattr(package, name, getattr(real, name))
            sys.setrecursionlimit(limit)  # py_ecc raises it for the whole process
            self._is_installed = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(fullname, self) if fullname in DEFERRED else None

    def exec_module(self, module: ModuleType) -> None:
        for name in DEFERRED[module.__name__]:
            setattr(module, name, DeferredPrecompile(module.__name__, name))


_CURVES = _Curves()
defer_curves = _CURVES.defer
