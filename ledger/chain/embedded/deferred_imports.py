"""Keeps py-evm's import from building elliptic curves that nearly nobody calls.

py-evm takes the pairing libraries in with everything else, and they compute their tables while they
are imported: half of the time in which a command that only reads starts. The precompiled contracts
that need them are taken in by the first call of one; what they compute and cost stays py-evm's.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

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
"""Modules of py-evm that import curves, and the precompiled contracts that each of them holds."""


class DeferredPrecompile:
    """A precompiled contract that imports itself when it is called.

    Called with options and nothing else, as forks set other prices, it returns itself with them.
    """

    def __init__(self, module: str, name: str, options: dict[str, int] | None = None) -> None:
        """Stand in for a function.

        Args:
            module: where py-evm has it.
            name: its name there.
            options: what it is called with besides.
        """
        self.module = module
        self.name = name
        self.options = options or {}

    def __call__(self, *computation: Any, **options: int) -> Any:
        """Run the contract, or take options."""
        chosen = self.options | options
        if not computation:
            return DeferredPrecompile(self.module, self.name, chosen)
        _CURVES.give_way()
        return getattr(import_module(self.module), self.name)(*computation, **chosen)


class _Curves(MetaPathFinder, Loader):
    """Finds stand-ins for the deferred modules, until one of their functions is called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_given_way = False

    def defer(self) -> None:
        """Stand in from now on; without effect where py-evm is imported already."""
        if PACKAGE not in sys.modules:
            sys.meta_path.insert(0, self)

    def give_way(self) -> None:
        """Bring the real modules in, in place of the stand-ins."""
        with self._lock:
            if self._has_given_way:
                return
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            limit, package = sys.getrecursionlimit(), import_module(PACKAGE)
            for module, names in DEFERRED.items():
                del sys.modules[module]
                real = import_module(module)
                # Importing `ecadd` binds the package's name to the module, as it was not before.
                for name in names:
                    setattr(package, name, getattr(real, name))
            sys.setrecursionlimit(limit)  # py_ecc lifts it for the whole process
            self._has_given_way = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a deferred module comes from: here."""
        del path, target
        return ModuleSpec(fullname, self) if fullname in DEFERRED else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill a stand-in."""
        for name in DEFERRED[module.__name__]:
            setattr(module, name, DeferredPrecompile(module.__name__, name))


_CURVES = _Curves()
defer_curves = _CURVES.defer
