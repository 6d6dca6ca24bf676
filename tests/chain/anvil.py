"""The anvil of this machine."""

from __future__ import annotations

import os
import shutil

import pytest


def anvil_program() -> str:
    """Return where it is; the test is skipped where there is none."""
    program = os.environ.get("CMFL_ANVIL") or shutil.which("anvil")
    if program is None:
        pytest.skip("no anvil on PATH, and CMFL_ANVIL names none")
    return program
