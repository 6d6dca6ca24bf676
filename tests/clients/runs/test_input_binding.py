"""Everything that an update follows from is bound: what has been swapped is refused by name."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.configuration.parsing import configuration_from_document, own_code_settings
from clients.configuration.schema import Configuration
from clients.datasets.own_samples import own_parts, samples_digest_of
from clients.models.model import option_files
from clients.runs.bound_inputs import bound_model
from clients.runs.population import populate, run_document
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import data_root, simulated_salt
from ledger.protocol.types import NO_DIGEST, ClientId, Digest
from tests.cmfl.commands.conftest import refusal, succeeds

NET = """
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = nn.Linear(64, 12)
        weights = torch.from_numpy(np.load(base))
        self.base.load_state_dict({"weight": weights, "bias": torch.zeros(12)})
        self.base.requires_grad_(False)
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        return self.head(torch.relu(self.base(x.flatten(1))))
"""
RUN = ("--set", "protocol.rounds=2", "--set", "machine.workers=1")


class Inputs:
    def __init__(self, folder: Path) -> None:
        self.net, self.base = folder / "net.py", folder / "base.npy"
        self.home = folder / "home"
        self.net.write_text(NET)
        self.write_base(1)

    def write_base(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        np.save(self.base, rng.normal(size=(12, 64)).astype(np.float32))

    @property
    def settings(self) -> tuple[str, ...]:
        return (f"model.name={self.net}:Net", f"model.options.base={self.base}")

    def options(self) -> list[str]:
        return [part for setting in self.settings for part in ("--set", setting)]

    def configuration(self) -> Configuration:
        return load("smoke", settings=("protocol.rounds=2", *self.settings))

    def document(self) -> RunDocument:
        configuration = self.configuration().on_path("plain")
        return run_document(configuration, populate(configuration))


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(tmp_path)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A run of which one round has been played."""
    found = Inputs(tmp_path_factory.mktemp("played"))
    succeeds("run", "--preset", "smoke", "--home", found.home, *RUN, *found.options())
    return found


def test_the_document_binds_code_frozen_state_and_samples(inputs: Inputs) -> None:
    document = inputs.document()
    assert document.model_source == sha256(inputs.net.read_bytes())
    assert NO_DIGEST not in {document.frozen_state, document.data_root}
    recorded = document.experiment["model"]
    assert recorded["options"] == {"base": f"sha256:{sha256(inputs.base.read_bytes()).hex()}"}
    assert str(inputs.base.parent) not in repr(document), "a path is another on each machine"
    assert decode_run(encode_run(document)) == document


def test_the_data_root_is_over_each_clients_own_samples(inputs: Inputs) -> None:
    configuration = inputs.configuration()
    population = populate(configuration)
    salts = [simulated_salt(configuration.seed, ClientId(client)) for client in range(12)]
    digests = list(map(samples_digest_of, population.clean.train, salts))
    assert inputs.document().data_root == data_root(population.clean.sample_counts, digests)
    assert len(set(digests)) == 12


def test_a_built_in_model_without_frozen_state_binds_zeros() -> None:
    configuration = load("smoke").on_path("plain")
    document = run_document(configuration, populate(configuration))
    assert (document.model_source, document.frozen_state) == (NO_DIGEST, NO_DIGEST)


def swapped(inputs: Inputs, what: str) -> tuple[str, str]:
    file = {"model file": inputs.net, "option file": inputs.base}[what]
    before = sha256(file.read_bytes()).hex()
    if what == "model file":
        inputs.net.write_text(NET + "\n# another\n")
    else:
        inputs.write_base(2)
    return before, sha256(file.read_bytes()).hex()


@pytest.mark.parametrize("what", ["model file", "option file"])
def test_a_swapped_file_is_refused_wherever_the_model_is_made(played: Inputs, what: str) -> None:
    exported = played.home.parent / "exported.safetensors"
    succeeds("model", "export", "--home", played.home, "--out", exported)
    named = ("--set", played.settings[0])
    evaluated = ("model", "evaluate", exported, "--home", played.home, *named)
    before = succeeds(*evaluated, "--json").json
    net, base = played.net.read_bytes(), played.base.read_bytes()
    try:
        digests = swapped(played, what)
        commands: dict[str, tuple[object, ...]] = {
            "resume": ("run", "--resume", "--home", played.home, *named),
            "evaluate": evaluated,
            "evaluate elsewhere": (
                *("model", "evaluate", exported, "--preset", "smoke"),
                *played.options(),
            ),
        }
        for name, command in commands.items():
            sentence = refusal(*command)
            if name == "evaluate elsewhere" and what == "option file":
                assert "frozen_state" in sentence
            else:
                assert all(digest in sentence for digest in digests), (name, sentence)
    finally:
        played.net.write_bytes(net)
        played.base.write_bytes(base)
    assert succeeds(*evaluated, "--json").json == before


@pytest.mark.parametrize("what", ["model file", "option file"])
def test_a_worker_refuses_a_swapped_file(inputs: Inputs, what: str) -> None:
    document = inputs.document()
    configuration = configuration_from_document(document, settings=inputs.settings)
    data = own_parts(configuration, document, (ClientId(3),))
    assert bound_model(configuration, data, document).frozen_state == document.frozen_state
    digests = swapped(inputs, what)
    with pytest.raises(ConfigurationError) as caught:
        bound_model(configuration_from_document(document, settings=inputs.settings), data, document)
    assert all(digest in str(caught.value) for digest in digests)


def test_a_worker_is_told_which_file_it_has_to_name(inputs: Inputs) -> None:
    document = inputs.document()
    with pytest.raises(ConfigurationError, match=r"model\.options\.base=PATH"):
        configuration_from_document(document, settings=inputs.settings[:1])


def test_a_frozen_tensor_without_a_named_file_is_bound_too(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    inputs.net.write_text(NET.replace("np.load(base)", f"np.load({str(inputs.base)!r})"))
    settings = (f"model.name={inputs.net}:Net", "model.options.base=unused")
    configuration = load("smoke", settings=settings).on_path("plain")
    document = run_document(configuration, populate(configuration))
    model = populate(configuration).model
    inputs.write_base(2)
    with pytest.raises(ConfigurationError, match=document.frozen_state.hex()):
        model.module()
    configuration = configuration_from_document(document, settings=settings)
    with pytest.raises(ConfigurationError, match=f"frozen.* was {document.frozen_state.hex()}"):
        bound_model(configuration, populate(configuration).clean, document)


def test_other_samples_are_refused_with_both_roots(inputs: Inputs) -> None:
    document = inputs.document()
    configuration = configuration_from_document(document, settings=inputs.settings)
    other = replace(document, data_root=Digest(b"\x01" * 32))
    with pytest.raises(ConfigurationError) as caught:
        own_parts(configuration, other, (ClientId(0),))
    assert document.data_root.hex() in str(caught.value)
    assert other.data_root.hex() in str(caught.value)


def test_a_folder_option_is_bound_with_all_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"1")
    (folder / "sub" / "b.bin").write_bytes(b"2")
    digests = [option_files({"base": str(folder), "width": 3, "word": "relu"})]
    assert digests[0].keys() == {"base"}
    (folder / "sub" / "b.bin").write_bytes(b"3")
    digests.append(option_files({"base": str(folder)}))
    (folder / "sub" / "b.bin").rename(folder / "b.bin")
    digests.append(option_files({"base": str(folder)}))
    assert len({found["base"] for found in digests}) == 3


def test_a_swapped_data_file_is_refused(tmp_path: Path) -> None:
    shared = Path(__file__).parents[4] / "shared" / "data" / "digits_by_writer.npz"
    if not shared.exists():
        pytest.skip("shared/data is not here")
    data, home = tmp_path / "data.npz", tmp_path / "home"
    shutil.copy(shared, data)
    options = ("--preset", "digits-by-writer", "--home", home, "--set", f"data.path={data}")
    succeeds("run", *options, *RUN)
    with np.load(data) as found:
        arrays = {name: found[name] for name in found.files}
    name = next(name for name, values in arrays.items() if values.ndim > 1)
    arrays[name] = arrays[name].copy()
    arrays[name][0] = 0
    before = sha256(data.read_bytes()).hex()
    np.savez(data, **arrays)
    after = sha256(data.read_bytes()).hex()
    exported = tmp_path / "model.safetensors"
    for command in (
        ("run", "--resume", "--home", home),
        ("model", "evaluate", home / "runs" / "run" / "model.safetensors", "--home", home),
    ):
        sentence = refusal(*command)
        assert before in sentence
        assert after in sentence
    data.unlink()
    # The chain names the model by its digest: an export needs neither code nor data.
    assert succeeds("model", "export", "--home", home, "--out", exported, "--json").json


RULE = """
import numpy as np


def far(update, references):
    return np.abs(references - update).sum(axis=1)
"""


def test_a_worker_names_its_own_copy_of_an_own_rule(tmp_path: Path) -> None:
    rule, other = tmp_path / "rule.py", tmp_path / "other.py"
    rule.write_text(RULE)
    other.write_text(RULE + "# another\n")
    configuration = load("smoke", settings=(f"protocol.distance={rule}:far",)).on_path("plain")
    document = run_document(configuration, populate(configuration))
    assert str(tmp_path) not in repr(document), "a path is another on each machine"
    assert decode_run(encode_run(document)) == document
    (setting,) = own_code_settings(configuration)
    local = configuration_from_document(document, settings=(setting,))
    assert local.parameters(document.parameters.dimension) == document.parameters
    with pytest.raises(ConfigurationError, match=r"--set protocol\.distance=FILE\.py:far"):
        configuration_from_document(document)
    for digest in (rule, other):
        with pytest.raises(ConfigurationError, match=sha256(digest.read_bytes()).hex()):
            configuration_from_document(document, settings=(f"protocol.distance={other}:far",))
    with pytest.raises(ConfigurationError, match="the run document fixes"):
        configuration_from_document(document, settings=(setting, "protocol.strategy=2"))
