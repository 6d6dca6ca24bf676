"""Models of a user: loaded by name in every process, checked before the first round."""

from __future__ import annotations

import hashlib
import importlib.metadata
import pickle
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.datasets.federated_data import DataForm
from clients.models.model import Model, check_model, vector_of
from clients.models.registry import UserModule, model_named, user_module
from ledger.io.user_code import MAX_FILE_BYTES
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import source_of_package
from tests.clients.models.forms import CHARACTERS, SCALED_DOWN, made

FORM = DataForm((1, 4, 4), 3)
BEGINNING = "import torch\nfrom torch import nn\n"
GOOD = """
class Net(nn.Module):
    def __init__(self, hidden: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(16, hidden)
        self.last = nn.Linear(hidden, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))
"""


CHANCE = "__import__('random').random()"
THROUGH_DROP = "self.last(self.drop(x.flatten(1)))"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def written(folder: Path, text: str) -> Path:
    path = folder / "net.py"
    path.write_text(BEGINNING + textwrap.dedent(text))
    return path


def with_body(*lines: str, forward: str = "self.last(x.flatten(1))") -> str:
    return "\n".join(
        [
            "class Net(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            "        self.last = nn.Linear(16, 3)",
            *(f"        {line}" for line in lines),
            "    def forward(self, x):",
            f"        return {forward}",
        ]
    )


def named(path: Path, class_name: str = "Net", **options: int) -> Model:
    return model_named(f"{path}:{class_name}", FORM, options)


def refused(path: Path, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        check_model(named(path), made(FORM))
    assert "\n" not in str(caught.value)


def test_named_parameters_in_order_are_the_vector(file: Path) -> None:
    model = named(file, hidden=5)
    assert model.layout == (
        ("first.weight", (5, 16)),
        ("first.bias", (5,)),
        ("last.weight", (3, 5)),
        ("last.bias", (3,)),
    )
    check_model(model, made(FORM))


def test_a_class_may_draw_its_start_itself(tmp_path: Path) -> None:
    text = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(16, 3)

        def draw_start(self, rng):
            nn.init.constant_(self.last.weight, rng.random())

        def forward(self, x):
            return self.last(x.flatten(1))
    """
    model = named(written(tmp_path, text))
    check_model(model, made(FORM))
    start = model.initial(np.random.default_rng(3))
    assert start[:48].tolist() == [np.float32(np.random.default_rng(3).random())] * 48


def test_a_file_is_recorded_by_sha256_without_its_folder(file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    recorded = {"name": "net.py:Net", "options": {}, "sha256": digest}
    assert named(file).recorded() == recorded
    assert named(file).source.hex() == digest
    assert named(file).name == "net.py:Net"


def test_a_packaged_class_is_bound_by_package_version_and_name() -> None:
    name, options = "clients.models.builtin:SoftmaxRegression", {"inputs": 16, "classes": 3}
    model = model_named(name, FORM, options)
    assert model.dimension == 51
    package, version = "cmfl-ledger", importlib.metadata.version("cmfl-ledger")
    recorded = {"name": name, "options": options, "package": f"{package}=={version}"}
    assert model.recorded() == recorded
    qualified = "clients.models.builtin.SoftmaxRegression"
    assert model.source == source_of_package(package, version, qualified)
    check_model(model, made(FORM))


def test_a_class_of_no_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="net is not in an installed package"):
        model_named("net:Net", FORM).recorded()


def test_it_is_pickled_by_name_and_loaded_again(file: Path) -> None:
    model = named(file)
    data = pickle.dumps(model)
    assert b"torch" not in data
    again: Model = pickle.loads(data)
    assert again.layout == model.layout
    assert vector_of(again.module()).shape == (model.dimension,)


def test_a_file_that_has_changed_is_not_loaded_again(file: Path) -> None:
    factory = user_module(f"{file}:Net")
    file.write_text(file.read_text() + "\n# changed\n")
    # As a worker meets it that starts later, with nothing loaded yet.
    with pytest.raises(
        ConfigurationError, match=rf"net.py has changed; .* was {factory.code.sha256}"
    ):
        factory(FORM, {})
    assert named(file).recorded()["sha256"] != factory.code.sha256


def test_one_parameter_under_two_names_is_one_tensor(tmp_path: Path) -> None:
    path = written(tmp_path, with_body("self.again = self.last"))
    assert [name for name, _ in named(path).layout] == ["last.weight", "last.bias"]
    check_model(named(path), made(FORM))


@pytest.mark.parametrize(("name", "form", "options"), SCALED_DOWN)
def test_the_built_in_models_pass_the_same_check(name: str, form: DataForm, options: Any) -> None:
    check_model(model_named(name, form, options), made(form))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("net.py:", "must be file.py:Class or package:Class"),
        ("net.py", "unknown model 'net.py'; known are softmax, .*, and classes of your own"),
        ("nowhere.py:Net", "nowhere.py cannot be read: No such file or directory"),
        ("no_such_package_here:Net", "cannot be imported: ModuleNotFoundError: No module named"),
        ("torch.nn:Nothing", "torch.nn has no class 'Nothing'"),
        ("collections:Counter", "model.name = 'collections:Counter': is not a class of torch.nn.M"),
        ("torch.nn:ReLU", "model.name = 'torch.nn:ReLU': has no trainable parameters"),
        ("torch.nn:Linear", r"cannot be made: TypeError: .* missing 2 required positional"),
    ],
)
def test_a_name_that_stands_for_no_model_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        model_named(name, FORM)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def Net( ", r"net.py cannot be loaded: SyntaxError: .*\(net.py, line 3\)"),
        ("raise SystemExit", r"cannot be loaded: SystemExit \(net.py, line 3\)"),
        ("class Silent(BaseException):\n    __str__ = None\nraise Silent", r"cannot be loaded: Si"),
        ("", "has no class 'Net'"),
        (with_body("raise KeyError('x')"), r"cannot be made: KeyError: 'x' \(net.py, line 7\)"),
        (with_body("self.requires_grad_(False)"), "has no trainable parameters"),
        (with_body("self.double()"), "'last.weight' is float64, and the vector is float32"),
        (with_body("self.lazy = nn.LazyLinear(2)"), "'lazy.weight' gets its shape from the first"),
        (with_body("self.none = nn.Parameter(torch.zeros(0, 3))"), "'none' has no numbers"),
        (
            with_body(r"self.register_parameter('\ud800', nn.Parameter(torch.zeros(3)))"),
            "has a name that is not Unicode text",
        ),
        (with_body("self.view = nn.Parameter(self.last.weight.detach()[1])"), "'last.weight' and"),
        (with_body("self.wide = nn.Parameter(torch.zeros(1).expand(5))"), "'wide' repeats one"),
        (
            with_body("self.drop = nn.BatchNorm1d(16)", forward=THROUGH_DROP),
            "in training changes 'drop.running_mean', which is not part of the vote .as BatchNorm",
        ),
        (with_body("self.drop = nn.Dropout(1e-9)", forward=THROUGH_DROP), "is random in 'drop'"),
        (with_body(forward="self.last(x.flatten(1)) + torch.rand(1)"), "in training is random"),
        (with_body(forward="exit(0)"), r"fails on inputs of shape \(8, 1, 4, 4\): SystemExit: 0"),
        (with_body("self.train = lambda: exit(0)"), "net.py:Net': SystemExit: 0"),
        (with_body(forward="self.last(x)"), r"fails on inputs of shape \(8, 1, 4, 4\): Runtime"),
        (with_body(forward="self.last(x.flatten(1)).T"), r"float32 of shape \(3, 8\); must be"),
        (with_body(forward="[self.last(x.flatten(1))]"), "returns list; must return a tensor"),
        (with_body(forward="self.last(x.flatten(1)).detach()"), "its backward pass fails: Runtime"),
        (with_body("self.other = nn.Linear(2, 2)"), "'other.weight' is not used in the forward"),
        (with_body(f"self.register_buffer('b', torch.tensor({CHANCE}))"), "'b' is not the same in"),
        (with_body(f"nn.init.constant_(self.last.bias, {CHANCE})"), "its start is not the same in"),
        (with_body("nn.init.constant_(self.last.bias, float('inf'))"), "its initial parameters a"),
        (with_body("self.draw_start = lambda rng: rng.no_such_draw()"), "its start cannot be draw"),
    ],
)
def test_an_untrainable_class_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    refused(written(tmp_path, text), sentence)


def test_an_option_that_the_class_does_not_take_is_refused(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="unexpected keyword argument 'depth'"):
        named(file, depth=3)


def test_tokens_for_a_numeric_model_are_refused_before_round_1(file: Path) -> None:
    model = model_named(f"{file}:Net", CHARACTERS)
    with pytest.raises(ConfigurationError, match=r"fails on inputs of shape \(8, 80\)"):
        check_model(model, made(CHARACTERS))


def test_a_folder_or_an_endless_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(ConfigurationError, match="is not a file, but a folder"):
        user_module(f"{tmp_path / 'folder.py'}:Net")
    large = tmp_path / "large.py"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigurationError, match=f"is over {MAX_FILE_BYTES} bytes"):
        user_module(f"{large}:Net")


def test_the_same_class_is_loaded_once_in_a_process(file: Path) -> None:
    factory: UserModule = user_module(f"{file}:Net")
    assert type(factory(FORM, {})) is type(factory(FORM, {}))
