"""The comparison of payload forms is played, counted and printed."""

from __future__ import annotations

from dataclasses import asdict
from io import StringIO

import pytest
from rich.console import Console

from benchmarks.payloads import MODELS, PayloadCell, play, print_codec, table_of
from ledger.protocol.payload_forms import PAYLOAD_FORMS

SETTINGS = ("protocol.rounds=1", "training.local_steps=1", "protocol.clients=20")


@pytest.mark.parametrize("model", ["mlp", "lstm"])
def test_a_rounded_update_of_a_model_is_a_quarter_of_the_bytes(model: str) -> None:
    rows = []
    for form in PAYLOAD_FORMS:
        cell = PayloadCell(model, "gaussian", form, 300, 0.2, SETTINGS)
        rows.append(asdict(cell) | asdict(play(cell, lambda _name: None)))
    plain, rounded = rows
    for key in ("trainer_bytes", "member_bytes", "stored_bytes"):
        assert 3.8 < plain[key] / rounded[key] < 3.94
    console = Console(file=StringIO(), width=130)
    console.print(table_of(rows))
    assert model in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_codec_is_timed_in_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    print_codec(1000, repeats=1)
    printed = capsys.readouterr().out
    assert all(name in printed for name in PAYLOAD_FORMS)
    assert set(MODELS) == {"softmax", "mlp", "cnn", "lstm", "leaf-cnn"}
