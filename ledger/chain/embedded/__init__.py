"""A chain in this process: py-evm over one SQLite file, one writer, any number of readers."""

from ledger.chain.embedded.deferred_imports import defer_curves

defer_curves()  # here, for it has to come before whatever module first imports py-evm
