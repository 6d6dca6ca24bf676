"""The committed artefact is what the committed sources compile to."""

from __future__ import annotations

import json

import pytest

from contracts.build import ARTIFACT, SOURCES, compiled
from ledger.chain import abi


def test_recompiling_gives_the_committed_artefact() -> None:
    pytest.importorskip("vyper", reason="the compiler is in the dev extra")
    assert json.loads(ARTIFACT.read_text("utf-8")) == compiled()


def test_names_compiler_and_sources() -> None:
    artifact = abi.artifact()
    assert artifact.compiler.startswith("vyper 0.4.3")
    assert set(artifact.sources) == set(SOURCES)
    # EIP-170, with room for the twelve immutables.
    assert len(artifact.runtime) + 12 * 32 <= 24_576
