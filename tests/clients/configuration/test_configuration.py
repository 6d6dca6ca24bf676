"""Every wrong setting is one sentence that names the value and the rule; the right one passes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from clients.attacks.updates import AttackParameters, attack_parameters
from clients.configuration.loading import checked, load
from clients.configuration.parsing import PRESETS
from clients.configuration.schema import REMOVED, REMOVED_DISTANCES, Configuration
from clients.runs.metrics import measured_sets
from clients.runs.population import populate, run_document
from ledger.io.parsing import MAX_DOTS, MAX_TOML_BYTES
from ledger.protocol.documents.run import decode_run, encode_run
from ledger.protocol.errors import CmflError, ConfigurationError, ParametersError
from ledger.protocol.types import Beacon, Quorum


def said_of(*settings: str, preset: str = "smoke") -> str:
    with pytest.raises((ConfigurationError, ParametersError)) as refused:
        load(preset, settings=settings)
    return str(refused.value)


def test_the_smallest_preset_has_the_sizes_that_its_rates_give() -> None:
    # K = 12: 0.833333 x 12 = 9.999996 -> 10 active, 0.4 x 10 = 4 members, 6 trainers, 3 accepted.
    parameters = load("smoke").parameters(dimension=650)
    assert parameters.active == 10
    assert (parameters.members, parameters.trainers, parameters.accepted) == (4, 6, 3)
    assert (parameters.strategy, parameters.distance) == (1, "squared")
    assert (parameters.quorum, parameters.beacon) == (Quorum.PAPER, Beacon.NONE)
    assert (parameters.commit_blocks, parameters.deadline_blocks) == (4, 64)
    assert parameters.view_seconds == 10


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_survives_being_written_and_read(preset: str, tmp_path: Path) -> None:
    configuration = load(preset, settings=("machine.workers=2", 'data.path="somewhere.npz"'))
    path = tmp_path / "config.toml"
    path.write_text(configuration.to_toml(), encoding="utf-8")
    assert load(path=path) == configuration


EVERY = """
    seed=7 protocol.server_rate=0.75 protocol.beacon="block" protocol.quorum=bft protocol.strategy=3
    protocol.commit_blocks=2 protocol.view_seconds=3 training.local_steps= training.local_epochs=3
    training.path=plain malice.attack=ipm malice.malicious_rate=0.25 malice.factor=5
    malice.members.equivocating=2 malice.trainers.not-finite=1 data.partition.name=shards
    model.options.hidden=7 evaluation.every=3 evaluation.samples=50 evaluation.training_loss=true
    machine.keep=3 machine.ledger=memory
"""


def test_a_configuration_with_every_section_survives_being_written_and_read(tmp_path: Path) -> None:
    configuration = load("smoke", settings=tuple(EVERY.split()))
    assert configuration.training.local_steps is None
    assert configuration.training.local_epochs == 3
    path = tmp_path / "config.toml"
    path.write_text(configuration.to_toml(), encoding="utf-8")
    assert load(path=path) == configuration


def test_the_default_is_the_preset_digits() -> None:
    assert load() == load("digits")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        # C = floor(0.2 x 10 + 1/2) = 2 members.
        (["protocol.committee_rate=0.2"], "C = 2 members, and needs at least 3"),
        # C = 6, so only n = 4 of 10 active clients are left.
        (["protocol.committee_rate=0.6"], "n = 4 trainers are fewer than C = 6 members"),
        (["protocol.clients=1000", "protocol.committee_rate=0.1"], "trainers = 750 is over the co"),
        # The window's 4 blocks, one to decide in, and one that may abandon.
        (["protocol.deadline_blocks=5"], "deadline_blocks = 5 is not in [6, 4294967295]"),
        (["protocol.commit_blocks=63"], "deadline_blocks = 64 is not in [65, 4294967295]"),
    ],
)
def test_settings_that_break_an_invariant_are_named(settings: list[str], sentence: str) -> None:
    assert sentence in said_of(*settings)


def test_the_same_settings_just_inside_the_rules_are_taken() -> None:
    for settings, sizes in (
        # 0.25 x 10 + 1/2 = 3 members; 0.5 x 10 = 5 members and 5 trainers.
        ("protocol.committee_rate=0.25", (3, 7)),
        ("protocol.committee_rate=0.5", (5, 5)),
        ("protocol.aggregation_rate=1.0", (4, 6)),
        ("protocol.deadline_blocks=6", (4, 6)),
        ("protocol.commit_blocks=62", (4, 6)),
    ):
        parameters = load("smoke", settings=(settings,)).parameters(dimension=1)
        assert (parameters.members, parameters.trainers) == sizes
        assert parameters.accepted <= parameters.trainers


def test_the_robust_preset_differs_from_digits_in_strategy_rate_and_calibration_only() -> None:
    robust, digits = load("robust").model_dump(), load("digits").model_dump()
    assert robust["protocol"].pop("strategy") == 3
    assert digits["protocol"].pop("strategy") == 1
    assert robust["training"].pop("learning_rate") == 1.0
    assert digits["training"].pop("learning_rate") == 0.5
    assert robust["training"].pop("calibrated") is True
    assert "calibrated" not in digits["training"], "recorded only where it is used"
    assert robust == digits


def test_strategy_3_alone_gives_the_robust_rule() -> None:
    plain = load("digits", settings=("protocol.strategy=3",))
    assert plain.parameters(650) == load("robust").parameters(650)
    assert plain.parameters(650) != load("digits").parameters(650)


@pytest.mark.parametrize("name", REMOVED)
@pytest.mark.parametrize("strategy", [1, 3])
def test_a_removed_setting_names_its_successor(name: str, strategy: int, tmp_path: Path) -> None:
    sentence = f"{name}: removed in protocol 3; {REMOVED[name]}"
    for value in ("own", "false"):
        assert said_of(f"protocol.strategy={strategy}", f"{name}={value}") == sentence
    path = tmp_path / "old.toml"
    path.write_text(f'[protocol]\nclients = 12\n{name.partition(".")[2]} = "own"\n', "utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        load(path=path)


@pytest.mark.parametrize("value", REMOVED_DISTANCES)
@pytest.mark.parametrize("strategy", [1, 2, 3])
def test_a_removed_distance_is_refused_with_its_successor(value: str, strategy: int) -> None:
    sentence = said_of(f"protocol.strategy={strategy}", f"protocol.distance={value}")
    assert sentence == (
        f"protocol.distance = {value}: removed in protocol 3; {REMOVED_DISTANCES[value]}"
    )


def test_strategy_3_refuses_a_distance_before_its_code_runs(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit('has run')\n", "utf-8")
    sentence = said_of("protocol.strategy=3", f"protocol.distance={file}:far")
    assert "goes with strategies 1 and 2 only" in sentence
    load("digits", settings=("protocol.strategy=3", "protocol.distance=squared"))


@pytest.mark.parametrize(
    ("rate", "ppm"),
    [("0.1", 100_000), ("0.8333333", 833_333), ("0.8333335", 833_334), ("1", 10**6)],
)
def test_a_rate_is_rounded_to_whole_millionths(rate: str, ppm: int) -> None:
    settings = (f"protocol.aggregation_rate={float(rate)}",)
    assert load("smoke", settings=settings).parameters(1).aggregation_ppm == ppm


RATES = ("protocol.active_rate", "protocol.aggregation_rate", "malice.malicious_rate")


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("value", ["-0.1", "1.1", "nan", "inf", '"0.5"', "true"])
def test_a_rate_that_is_no_share_is_refused_by_name(name: str, value: str) -> None:
    sentence = said_of(f"{name}={value}", "malice.attack=same-value")
    assert sentence.startswith(f"{name}: Input should be ")
    assert "given: " in sentence


WRONG = """
    colour=blue data.name=mnist data.options.glove=x data.partition.alpha=0 data.partition.alpha=nan
    data.partition.beta=1 data.partition.name=fair evaluation.every=0 evaluation.samples=0 seed=-1
    machine.device=cuda:x machine.device=tpu machine.engine=spark machine.keep=0 machine.keep=some
    machine.ledger=paper machine.workers=0 machine.workers=257 malice.attack=bribery malice.factor=2
    malice.malicious_rate=0.3 malice.members.late=1 malice.members.silent=-1 malice.on=gradient
    malice.on=weights malice.only=members malice.trainers.tired=1 model.name=resnet
    model.options.hidden=[1] protocol.beacon=moon protocol.clients=-3 protocol.clients=0
    protocol.clients=12.0 protocol.clients=12289 protocol.clients=many protocol.clients=true
    protocol.commit_blocks=0 protocol.distance=far protocol.omega=0.4 protocol.quorum=all
    protocol.rounds=0 protocol.server_rate=-inf protocol.server_rate=0 protocol.server_rate=nan
    protocol.strategy=4 protocol.strategy=I protocol.view_seconds=0 protocol=3 weather.rain=1
    seed=9223372036854775808 training.batch_size=0 training.batch_size=99999999999999999999
    training.learning_rate=0 training.learning_rate=1e39 training.learning_rate=nan
    training.local_steps=0 training.local_steps=2.5 training.local_steps= training.path=fast
    training.proximal=1e39
"""


@pytest.mark.parametrize("setting", WRONG.split())
def test_a_wrong_setting_is_named_as_the_file_has_it(setting: str) -> None:
    name = setting.partition("=")[0]
    said = said_of(setting)
    assert said.startswith((name, f"{name.rpartition('.')[0]}: ")), said
    assert "\n" not in said


def test_a_wrong_setting_is_named_with_what_is_known() -> None:
    assert "data set 'mnist'; known are digits, digits-by-writer" in said_of("data.name=mnist")
    assert "strategy = 4 is none of 1, 2, 3" in said_of("protocol.strategy=4")
    assert "machine.workers: Input should be less than or equal to 256" in said_of(
        "machine.workers=257"
    )
    assert "training.local_steps = 2, training.local_epochs = 1: exactly" in said_of(
        "training.local_epochs=1"
    )


@pytest.mark.parametrize("setting", ["on=weights", "on=update", "only=members"])
def test_an_attack_on_samples_has_no_base_setting(setting: str) -> None:
    sentence = said_of("malice.attack=label-flip", f"malice.{setting}")
    assert f"malice.{setting[:2]}" in sentence
    assert "'label-flip' changes samples" in sentence


def test_the_base_of_an_attack_is_recorded_only_if_given() -> None:
    attack = ("malice.attack=ipm", "malice.malicious_rate=0.2")
    silent, said = load("smoke", settings=attack), load(settings=(*attack, "malice.on=weights"))
    assert not {"on", "only"} & silent.recorded()["malice"].keys()
    assert said.recorded()["malice"]["on"] == "weights"
    assert attack_parameters(said.malice) == AttackParameters(on="weights")


def test_a_path_that_is_given_stays_and_auto_is_settled() -> None:
    assert load("smoke").on_path("lockstep").training.path == "lockstep"
    given = load("smoke", settings=("training.path=plain",))
    assert given.on_path("lockstep").training.path == "plain"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["malice.attack=back-gradient", "malice.factor=0"], "factor = 0.0: attack 'back-gr"),
        (["malice.attack=gradient-scaling", "malice.factor=1.5"], "factor = 1.5: attack 'gradie"),
        (["malice.attack=min-max", "malice.factor=1.0"], "factor = 1.0: attack 'min-max' takes no"),
    ],
)
def test_a_factor_that_the_attack_does_not_take_is_refused(settings: Any, sentence: str) -> None:
    assert f"malice.{sentence}" in said_of(*settings)
    load("smoke", settings=(settings[0], "malice.malicious_rate=0.3"))


def test_an_attack_needs_a_rate_and_a_rate_an_attack() -> None:
    sentence = "malice.attack = ipm needs malice.malicious_rate, the share of attackers"
    assert sentence in said_of("malice.attack=ipm")
    assert "= label-flip needs" in said_of("malice.attack=label-flip")
    assert said_of("malice.malicious_rate=0.3") == (
        "malice.malicious_rate is set, but malice.attack is not"
    )
    # Where a comparison over rates begins; and faults have numbers of their own.
    begins = load("smoke", settings=("malice.attack=ipm", "malice.malicious_rate=0"))
    assert (begins.malice.attack, begins.malice.malicious_rate) == ("ipm", 0.0)
    assert checked(begins.model_dump(exclude_none=True)) == begins
    load("smoke", settings=("malice.members.silent=1",))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("protocol.clients", "--set protocol.clients: must be section.key=value"),
        ("seed.x=5", "seed.x: unknown section seed"),
        ("protocol..clients=5", "protocol.: there is no such setting"),
        ("protocol.clients=" + "[" * 5000, "protocol.clients: Input should be a valid integer"),
        ("protocol.clients=" + "9" * 5000, "protocol.clients: Input should be a valid integer"),
        # A second line is no second setting.
        ("seed=1\nvalue2=2", "seed: Input should be a valid integer"),
    ],
)
def test_a_setting_of_another_form_is_refused(setting: str, sentence: str) -> None:
    assert sentence in said_of(setting)


def test_settings_are_toml_values_or_words_and_the_last_counts() -> None:
    found = load(
        "smoke",
        settings=("seed=1", "seed = 2", "model.name=cnn", 'protocol.payload="q8"', "data.path="),
    )
    assert (found.seed, found.model.name, found.protocol.payload) == (2, "cnn", "q8")
    assert found.data.path is None


def test_a_number_needs_no_zero_before_its_point() -> None:
    for text, number in (("+.3", 0.3), (".3e-2", 0.003)):
        found = load("smoke", settings=(f"training.learning_rate={text}",))
        assert found.training.learning_rate == number
    assert "= -0.3: must be above 0" in said_of("training.learning_rate=-.3")
    assert "a valid number (given: .3.1)" in said_of("training.learning_rate=.3.1")


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def good_text() -> str:
    return load("smoke").to_toml()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "protocol: Field required"),
        (bytes(range(128)), "not TOML: "),
        (b"seed = \n", "not TOML: Invalid value"),
        (b"seed = " + b"[" * 90_000, "not TOML: "),
        (b"seed = " + b"9" * 5_000, "not TOML: "),
        (b"#" * (MAX_TOML_BYTES + 1), f"is over {MAX_TOML_BYTES} bytes"),
        (b"seed = 1\n" + b"a." * MAX_DOTS + b"a.b = 1\n", "line 2 has 65 dots, more than 64"),
    ],
)
def test_a_damaged_file_is_refused_by_its_fault(data: bytes, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(path=write(tmp_path / "config.toml", data))
    assert sentence in str(refused.value)


def test_a_truncated_file_is_refused_or_obeys_the_rules(tmp_path: Path) -> None:
    data = good_text().encode()
    sentences = [sentence_about(write(tmp_path / "c.toml", data[:end])) for end in range(len(data))]
    assert "\n" not in "".join(sentences)
    assert sentences[0] == "protocol: Field required"
    assert "" in sentences, "without its last section the file still is a configuration"


def sentence_about(path: Path) -> str:
    try:
        load(path=path)
    except CmflError as error:
        return str(error)
    return ""


def test_a_missing_file_a_folder_and_two_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.toml cannot be read: No such file"):
        load(path=tmp_path / "gone.toml")
    with pytest.raises(ConfigurationError, match="cannot be read: it is not a file, but a folder"):
        load(path=tmp_path)
    with pytest.raises(ConfigurationError, match="a preset or a configuration file, not both"):
        load("smoke", tmp_path)
    with pytest.raises(ConfigurationError, match="unknown preset 'huge'; known are digits"):
        load("huge")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["protocol.clients=1439", "protocol.active_rate=0.01"], "protocol.clients = 1439: more c"),
        (["malice.members.silent=13"], "malice.members: 13 faulty clients: at most 12"),
        (["evaluation.samples=360"], "evaluation.samples = 360: the test set has 359 samples"),
        (["evaluation.per_client=true"], "evaluation.per_client is set, but the clients of"),
        (["data.path=x.npz", "data.name=digits"], "data.path = x.npz: data set 'digits' takes no"),
        (["data.name=digits-by-writer"], "data.path is not set: data set 'digits-by-"),
        (["data.name=digits-by-writer", "data.path=gone.npz"], "gone.npz: no such file"),
    ],
)
def test_what_only_the_data_can_refuse_is_refused_by_name(settings: Any, sentence: str) -> None:
    configuration = load("smoke", settings=tuple(settings))
    with pytest.raises(ConfigurationError) as refused:
        looked_at(configuration)
    assert str(refused.value).startswith(sentence)


def looked_at(configuration: Configuration) -> None:
    data = populate(configuration).data
    measured_sets(data, configuration.evaluation, configuration.seed)


@pytest.mark.parametrize("model", ["softmax", "cnn"])
def test_a_record_is_read_back_with_the_models_layout(model: str) -> None:
    configuration = load("smoke", settings=(f"model.name={model}",))
    population = populate(configuration)
    document = run_document(configuration, population)
    assert decode_run(encode_run(document)) == document
    assert document.layout == population.model.layout
    assert document.parameters.dimension == population.model.dimension
    addresses = [client.address for client in document.registry]
    assert addresses == sorted(set(addresses))


def recorded(settings: tuple[str, ...]) -> bytes:
    configuration = load("smoke", settings=settings)
    return encode_run(run_document(configuration, populate(configuration)))


def test_the_record_keeps_only_what_changes_the_result() -> None:
    plain = recorded(())
    assert recorded(("machine.workers=3", "machine.device=auto")) == plain
    for setting in ("seed=1", "training.learning_rate=0.25", "protocol.rounds=6"):
        assert recorded((setting,)) != plain


@pytest.mark.parametrize(
    "values", [{}, {"protocol": None}, {"protocol": {"clients": None}}, {"protocol": []}, {1: 2}]
)
def test_plain_values_of_any_shape_are_refused_in_one_sentence(values: dict[Any, Any]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        checked(values)
    assert "\n" not in str(refused.value)
