"""Model files: tensors by name, in a stated order, bounded before they are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from clients.models.model_file import (
    MAX_HEADER_BYTES,
    decode_model,
    encode_model,
    mean_model,
    read_model_file,
)
from clients.models.registry import model_named
from clients.runs.run_folder import run_folder
from ledger.protocol.errors import EncodingError
from tests.clients.models.forms import IMAGES

LAYOUT = (("b.weight", (2, 2)), ("a.bias", (2,)), ("scale", ()))
VECTOR = np.arange(7, dtype=np.float32)


def refusal(data: bytes) -> str:
    with pytest.raises(EncodingError) as caught:
        decode_model(data)
    return str(caught.value)


def with_header(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_any_program_reads_the_tensors_by_name_and_shape() -> None:
    tensors = load(encode_model(VECTOR, LAYOUT))
    assert tensors["b.weight"].tolist() == [[0, 1], [2, 3]]
    assert tensors["a.bias"].tolist() == [4, 5]
    assert tensors["scale"] == 6


def test_the_vector_follows_the_layout_and_not_the_names() -> None:
    stored = decode_model(encode_model(VECTOR, LAYOUT, {"name": "cnn"}))
    assert stored.vector.tolist() == VECTOR.tolist()
    assert stored.layout == LAYOUT
    assert stored.facts == {"name": "cnn"}


def test_equal_models_make_equal_files() -> None:
    facts = {"name": "cnn", "options": "{}", "head": "0x00"}
    files = {encode_model(VECTOR, LAYOUT, facts) for _ in range(5)}
    files.add(encode_model(VECTOR, LAYOUT, dict(reversed(facts.items()))))
    assert len(files) == 1


def test_a_mean_is_summed_in_order_in_float64_and_rounded_once() -> None:
    # In float32 the sum of the first column loses both ones. In float64 their order decides about
    # the last column.
    columns = [(3e8, 1, 1), (0.1, 0.2, 0.4), (1e20, 1, -1e20)]
    models = np.array(columns, dtype=np.float32).T
    one, two, three = models.astype(np.float64)
    found = mean_model(iter(models))
    assert found.dtype == np.float32
    assert found.tobytes() == ((one + two + three) / 3).astype(np.float32).tobytes()
    assert found[0] == np.float32((3e8 + 2) / 3)
    assert found[2] == 0
    assert mean_model(models[[0, 2, 1]])[2] == np.float32(1 / 3)


def test_the_mean_of_one_model_has_its_bytes() -> None:
    model = np.array([-0.0, 1e-45, 3.4e38, -1.5], dtype=np.float32)
    assert mean_model([model]).tobytes() == model.tobytes()


def test_a_run_folder_gives_back_what_it_was_given(tmp_path: Path) -> None:
    model = model_named("softmax", IMAGES)
    folder = run_folder(tmp_path, "run")
    assert folder.read_model() is None
    vector = model.initial(np.random.default_rng(0))
    data = encode_model(vector, model.layout, {"name": model.name})
    folder.disk.write_whole(folder.paths.model, data)
    stored = folder.read_model()
    assert stored is not None
    assert np.array_equal(stored.vector, vector)
    assert stored.layout == model.layout
    folder.paths.model.write_bytes(save({"parameters": vector}))
    assert folder.read_model() is None, "what an older version wrote is made again"


def test_vectors_of_wrong_length_and_unreadable_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(6,\) parameters for tensors of 7"):
        encode_model(VECTOR[:6], LAYOUT)
    with pytest.raises(EncodingError, match="can be named '__metadata__'"):
        encode_model(VECTOR[:1], (("__metadata__", (1,)),))
    with pytest.raises(EncodingError, match="over 1 MiB"):
        encode_model(VECTOR, LAYOUT, {"name": "x" * MAX_HEADER_BYTES})


def test_a_file_of_an_older_version_is_refused_with_reason() -> None:
    assert "do not state the order" in refusal(save({"parameters": VECTOR}))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not a safetensors file"),
        (b"\xff" * 8, "header is over 1 MiB"),
        ((2).to_bytes(8, "little") + b"\xff\xff", "not a safetensors file"),
        (with_header([]), "header is not a map"),
        (save({"a": VECTOR.astype(np.float16)}), "tensor 'a' is not of type F32"),
        (save({"a": VECTOR}), "do not state the order"),
        (save({"a": VECTOR}, {"cmfl": "[]"}), "do not state the order"),
        (save({"a": VECTOR}, {"cmfl": '{"order": ["b"], "facts": {}}'}), "do not state the order"),
        (save({"a": VECTOR}, {"cmfl": '{"order": ["a"], "facts": 1}'}), "do not state the order"),
        (with_header({"__metadata__": 3, "a": {"dtype": "F32"}}), "do not state the order"),
        (encode_model(VECTOR, LAYOUT)[:-1], "it is damaged"),
        (encode_model(VECTOR, LAYOUT) + b"\0", "it is damaged"),
    ],
)
def test_what_is_no_model_file_is_refused(data: bytes, sentence: str) -> None:
    assert sentence in refusal(data)


def test_a_file_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(encode_model(VECTOR, LAYOUT))
    assert read_model_file(path).layout == LAYOUT
    monkeypatch.setattr("clients.models.model_file.MAX_MODEL_BYTES", 100)
    with pytest.raises(EncodingError, match=r"model\.safetensors: it is over 100 bytes"):
        read_model_file(path)
    with pytest.raises(FileNotFoundError):
        read_model_file(tmp_path / "none")
