"""The refusals that a test expects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ledger.protocol.errors import ProtocolRefusal, RefusalCode


@contextmanager
def refused(code: RefusalCode) -> Iterator[None]:
    """Expect that the ledger refuses a transaction for one reason."""
    with pytest.raises(ProtocolRefusal) as caught:
        yield
    assert caught.value.code is code
