"""The precompiled contract `ecrecover` by one call of coincurve.

py-evm's goes through eth-keys, whose objects cost as much as the recovery itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coincurve import PublicKey
from eth.constants import GAS_ECRECOVER
from eth.vm.forks.prague.computation import PragueComputation

from ledger.protocol.keccak import keccak

if TYPE_CHECKING:
    from eth.abc import ComputationAPI

_ADDRESS = bytes(19) + b"\x01"
_RECOVERY_IDS = {27: b"\x00", 28: b"\x01"}


def ecrecover(computation: ComputationAPI) -> ComputationAPI:
    """Set the output to the address that signed, or leave it empty if there is none."""
    computation.consume_gas(GAS_ECRECOVER, reason="ECRecover Precompile")
    data = computation.msg.data_as_bytes[:128].ljust(128, b"\0")
    recovery_id = _RECOVERY_IDS.get(int.from_bytes(data[32:64]))
    if recovery_id is None:
        return computation
    try:
        key = PublicKey.from_signature_and_message(data[64:] + recovery_id, data[:32], hasher=None)
    except ValueError:
        return computation
    computation.output = bytes(12) + keccak(key.format(compressed=False)[1:])[12:]
    return computation


PRECOMPILES = PragueComputation.get_precompiles() | {_ADDRESS: ecrecover}
"""Prague's precompiled contracts by address."""
