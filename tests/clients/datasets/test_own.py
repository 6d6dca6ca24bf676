"""An owner's own samples: the form is all that others know; what a worker loads is held to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from clients.configuration.loading import load
from clients.configuration.parsing import configuration_from_document
from clients.datasets.federated_data import parse_settings
from clients.datasets.own import MOST_NUMBERS, OwnOptions, read_own, trial_data
from clients.datasets.own_samples import own_parts
from clients.datasets.registry import DATASETS, DataChoice, data_digest, load_dataset, verify_choice
from clients.runs.population import populate, run_document, with_training_path
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId
from tests.clients.onboarding.owners import document_of, registry_of, samples_file

FORM: dict[str, Any] = {"shape": [1, 2, 2], "classes": 3}


def options(**changed: Any) -> OwnOptions:
    return parse_settings(OwnOptions, FORM | changed, "data.options")


def arrays(rows: int = 4, **changed: NDArray[Any]) -> dict[str, NDArray[Any]]:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 1, 2, 2)
    return {"x": x, "y": np.arange(rows) % 3, **changed}


def written(path: Path, held: dict[str, NDArray[Any]]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=True, **held)
    else:
        save_file(held, path)
    return path


@pytest.mark.parametrize("name", ["own.npz", "own.safetensors"])
def test_a_file_is_read_with_its_test_samples_if_any(tmp_path: Path, name: str) -> None:
    found = read_own(written(tmp_path / name, arrays()), options())
    assert found.test is None
    assert found.train.x.tolist() == arrays()["x"].tolist()
    assert found.train.y.tolist() == [0, 1, 2, 0]
    assert found.train.y.dtype == np.int64
    assert not found.train.x.flags.writeable
    held = arrays(x_test=arrays(2)["x"], y_test=arrays(2)["y"])
    tested = read_own(written(tmp_path / f"tested-{name}", held), options())
    assert tested.test is not None
    assert (len(tested.train.y), len(tested.test.y)) == (4, 2)


@pytest.mark.parametrize("name", ["own.npz", "own.safetensors"])
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"x": np.zeros((4, 2, 2), dtype=np.float32)}, r"shape \(4, 2, 2\) does not fit"),
        ({"x": np.zeros((4, 1, 2, 2), dtype=np.uint8)}, r"x: must be of type .*, is "),
        ({"x": np.full((4, 1, 2, 2), np.nan, dtype=np.float32)}, r"x: values nan"),
        ({"y": np.array([0, 1, 2, 3])}, r"y: values 0 \.\. 3, outside 0 \.\. 2"),
        ({"y": np.zeros(3, dtype=np.int64)}, "unequal length"),
        ({"x_test": np.zeros((1, 1, 2, 2), dtype=np.float32)}, "must hold exactly"),
        ({"z": np.zeros(4, np.float32)}, "must hold exactly"),
        (
            {"x": np.zeros((0, 1, 2, 2), dtype=np.float32), "y": np.zeros(0, dtype=np.int64)},
            "empty or of unequal length",
        ),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_rule(
    tmp_path: Path, name: str, changed: dict[str, NDArray[Any]], sentence: str
) -> None:
    path = written(tmp_path / name, arrays() | changed)
    with pytest.raises(ConfigurationError, match=sentence):
        read_own(path, options())


def test_pixels_and_tokens_have_types_and_bounds_of_their_own(tmp_path: Path) -> None:
    pixels = options(inputs="pixels")
    held = arrays(x=np.full((4, 1, 2, 2), 255, dtype=np.uint8))
    found = read_own(written(tmp_path / "p.npz", held), pixels)
    inputs = pixels.collate()(found.train.x)
    assert inputs.dtype == np.float32
    assert (inputs.max(), inputs.shape) == (1.0, (4, 1, 2, 2))
    tokens = options(inputs="tokens", shape=[3], vocabulary=5)
    held = {"x": np.arange(6).reshape(2, 3) % 5, "y": np.zeros(2, dtype=np.int64)}
    found = read_own(written(tmp_path / "t.npz", held), tokens)
    assert tokens.collate()(found.train.x).dtype == np.int64
    held["x"] = held["x"] + 1
    with pytest.raises(ConfigurationError, match=r"x: values 1 \.\. 5, outside 0 \.\. 4"):
        read_own(written(tmp_path / "over.npz", held), tokens)
    form = tokens.form()
    assert (form.input_shape, form.vocabulary, form.input_dtype) == ((3,), 5, "int64")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"vocabulary": 4}, "is only for inputs = tokens"),
        ({"inputs": "tokens", "vocabulary": 4}, "a shape of one size"),
        ({"shape": []}, "at least 1 item"),
        ({"shape": [MOST_NUMBERS, 2]}, "at most 2\\^24 numbers"),
        ({"classes": 1}, "greater than or equal to 2"),
        ({"inputs": "words"}, "'numbers', 'pixels' or 'tokens'"),
    ],
)
def test_an_impossible_form_is_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        options(**changed)


def test_only_the_form_is_recorded_and_nothing_is_divided() -> None:
    choice = DataChoice("own", options=FORM)
    recorded = {"inputs": "numbers", "shape": [1, 2, 2], "classes": 3}
    natural = {"name": "natural"}
    assert data_digest(choice) == {"name": "own", "options": recorded, "partition": natural}
    with pytest.raises(ConfigurationError, match="no single process can load them all"):
        load_dataset(choice, 3, np.random.default_rng(0))
    with pytest.raises(ConfigurationError, match=r"data\.partition\.name = iid: .* be divided"):
        verify_choice(DataChoice("own", options=FORM, partition={"name": "iid"}))
    with pytest.raises(ConfigurationError, match=r"data\.path = x: .* own samples with --data"):
        load("smoke", settings=("data.name=own", "data.path=x", *own_settings()))
    with pytest.raises(ConfigurationError, match="no single process"):
        DATASETS["own"].records(None)


def own_settings() -> tuple[str, ...]:
    return ("data.options.shape=[1,2,2]", "data.options.classes=3")


@pytest.mark.parametrize(
    "changed", [{}, {"inputs": "pixels"}, {"inputs": "tokens", "shape": [4], "vocabulary": 9}]
)
def test_trial_samples_have_the_form_and_depend_on_the_stream(changed: dict[str, Any]) -> None:
    form = options(**changed)
    one, same = (trial_data(form, 5, np.random.default_rng(1)) for _ in range(2))
    inputs = one.collate(one.train[0].x)
    assert inputs.shape[1:] == one.form.input_shape
    assert inputs.dtype == one.form.input_dtype
    assert np.array_equal(one.train[0].x, same.train[0].x)
    assert (len(one.train), len(one.test.y)) == (5, 0)
    assert one.train[0].y.max() < 3


@pytest.mark.parametrize("name", ["own", "own.csv", "own.parquet", "own.pt"])
def test_another_extension_is_refused_with_those_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x,y\n1,2\n")
    with pytest.raises(ConfigurationError, match=r"must be an \.npz or \.safetensors"):
        read_own(tmp_path / name, OwnOptions(shape=[2], classes=3))


SEQUENCES: dict[str, Any] = {"inputs": "tokens", "shape": [3], "classes": 5, "vocabulary": 5}
X = np.array([[1, 2, 3], [4, 0, -1]])


def test_the_next_tokens_of_an_owner_follow_from_its_inputs(tmp_path: Path) -> None:
    form = options(task="causal-lm", **SEQUENCES)
    held = written(tmp_path / "own.npz", {"x": X, "x_test": X})
    found = read_own(held, form)
    assert found.train.y.tolist() == [[2, 3, -100], [0, -100, -100]]
    assert found.test is not None
    assert found.test.y.tolist() == found.train.y.tolist()
    assert (form.form().task, form.form().classes) == ("causal-lm", 5)
    trial = trial_data(form, 2, np.random.default_rng(0))
    assert trial.train[0].y.shape == (8, 3)


def test_each_token_of_an_owner_has_a_class_or_does_not_count(tmp_path: Path) -> None:
    form = options(task="token-classify", **SEQUENCES | {"classes": 2})
    y = np.array([[0, 1, -100], [1, -100, -100]])
    found = read_own(written(tmp_path / "own.npz", {"x": X, "y": y}), form)
    assert found.train.y.tolist() == y.tolist()
    for wrong, sentence in (
        (y - 1, "outside"),
        (np.where(y == 0, -5, y), "classes from 0 on"),
        (np.where(X == -1, 1, y), "must be -100 at each x of -1"),
    ):
        path = written(tmp_path / "wrong.npz", {"x": X, "y": wrong})
        with pytest.raises(ConfigurationError, match=sentence):
            read_own(path, form)
    empty = written(tmp_path / "empty.npz", {"x": X, "y": np.full(X.shape, -100)})
    with pytest.raises(ConfigurationError, match="row 0 has no token with a class"):
        read_own(empty, form)


def test_numbers_of_an_owner_are_regressed(tmp_path: Path) -> None:
    form = options(task="regress", classes=1)
    y = np.linspace(0, 1, 4, dtype=np.float32)[:, None]
    found = read_own(written(tmp_path / "own.npz", arrays(y=y)), form)
    assert found.train.y.dtype == np.float32
    assert found.train.y.tolist() == y.tolist()
    assert trial_data(form, 1, np.random.default_rng(0)).train[0].y.shape == (8, 1)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"task": "causal-lm"}, "inputs: must be tokens"),
        ({"task": "masked-lm", **SEQUENCES, "classes": 4}, "vocabulary: must be classes"),
        ({"classes": 1}, "classes: Input should be greater than or equal to 2"),
    ],
)
def test_a_form_that_does_not_fit_its_task_is_refused(changed: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        options(**changed)


@pytest.fixture(scope="module")
def document() -> RunDocument:
    return decode_run(encode_run(document_of(registry_of())))


@pytest.fixture(scope="module")
def simulated() -> RunDocument:
    configuration = load("robust", settings=("malice.members={}",))
    population = populate(configuration)
    return run_document(with_training_path(configuration, population), population)


def rows(document: RunDocument, client: int) -> int:
    return document.registry[client].samples


def test_the_document_tells_the_configuration_whole(simulated: RunDocument) -> None:
    told = configuration_from_document(simulated)
    assert encode_run(run_document(told, populate(told))) == encode_run(simulated)
    assert told.training.path == "lockstep"


def test_part_i_is_what_the_simulation_has_at_index_i(simulated: RunDocument) -> None:
    told = configuration_from_document(simulated)
    clean = populate(told).clean
    for client in (0, len(simulated.registry) - 1):
        part = own_parts(told, simulated, (ClientId(client),)).train[client]
        assert np.array_equal(part.x, clean.train[client].x)
        assert np.array_equal(part.y, clean.train[client].y)
    with pytest.raises(ConfigurationError, match="client 99999 must be one of 0"):
        own_parts(told, simulated, (ClientId(99999),))
    with pytest.raises(ConfigurationError, match="no client is given"):
        own_parts(told, simulated, ())


def test_other_data_than_those_of_the_run_are_refused(simulated: RunDocument) -> None:
    told = configuration_from_document(simulated)
    other = replace(simulated, experiment={**simulated.experiment, "data": {"name": "digits"}})
    with pytest.raises(ConfigurationError, match="differ from the run's"):
        own_parts(told, other, (ClientId(0),))
    first, *rest = simulated.registry
    more = replace(simulated, registry=(RegisteredClient(first.address, 9999), *rest))
    with pytest.raises(ConfigurationError, match=r"client 0 has \d+ .*, and is registered with 99"):
        own_parts(told, more, (ClientId(0),))


def test_one_client_reads_one_file_and_several_a_folder(document: Any, tmp_path: Path) -> None:
    told = configuration_from_document(document)
    mine = samples_file(tmp_path / "mine.npz", rows(document, 2))
    found = own_parts(told, document, (ClientId(2),), mine)
    assert [len(part.y) for part in found.train] == [0, 0, rows(document, 2), 0, 0, 0]
    # What all clients have decides how they are trained together.
    assert found.sample_counts == tuple(client.samples for client in document.registry)
    assert len(found.test.y) == 2
    with pytest.raises(ConfigurationError, match="2 clients need a folder"):
        own_parts(told, document, (ClientId(1), ClientId(2)), mine)
    folder = tmp_path / "all"
    folder.mkdir()
    for client in (1, 2):
        name = f"0x{document.registry[client].address.hex()}.npz"
        samples_file(folder / name, rows(document, client))
    found = own_parts(told, document, (ClientId(1), ClientId(2)), folder)
    sizes = [len(part.y) for part in found.train]
    assert sizes == [0, rows(document, 1), rows(document, 2), 0, 0, 0]
    assert len(found.test.y) == 4
    with pytest.raises(ConfigurationError, match=r"no 0x\w+\.npz or \.safetensors"):
        own_parts(told, document, (ClientId(0),), folder)


def test_own_samples_must_be_there_and_as_many_as_registered(document: Any, tmp_path: Path) -> None:
    told = configuration_from_document(document)
    with pytest.raises(ConfigurationError, match="give the file of your own samples with --data"):
        own_parts(told, document, (ClientId(0),))
    short = samples_file(tmp_path / "short.npz", rows(document, 0) - 1)
    with pytest.raises(ConfigurationError, match="training samples, and is registered with"):
        own_parts(told, document, (ClientId(0),), short)


def test_no_document_names_code_or_a_local_file(simulated: RunDocument) -> None:
    def told_by(**changed: object) -> None:
        configuration_from_document(
            replace(simulated, experiment={**simulated.experiment, **changed})
        )

    with pytest.raises(ConfigurationError, match=r"'os:system', code of the run's owner"):
        told_by(model={"name": "os:system", "options": {}})
    with pytest.raises(ConfigurationError, match=r"data\.options\.glove is required"):
        told_by(data={"name": "sent140", "options": {"glove": "/etc/passwd"}, "partition": {}})
    with pytest.raises(ConfigurationError, match="data is not a table"):
        told_by(data=[1])
    with pytest.raises(ConfigurationError, match="seed"):
        told_by(seed="one")
    with pytest.raises(ConfigurationError, match="the run document fixes this setting"):
        configuration_from_document(simulated, settings=("training.learning_rate=9",))
    told = configuration_from_document(
        simulated, settings=("machine.workers=2", "evaluation.every=3")
    )
    assert (told.machine.workers, told.evaluation.every) == (2, 3)
