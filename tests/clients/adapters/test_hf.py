"""The model `hf`: what is trained and bound, which bases are refused, and runs by command line."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from safetensors.torch import load_file, save_file

import cmfl
from clients.configuration.loading import load as load_configuration
from clients.configuration.parsing import own_code_settings
from clients.datasets.federated_data import NO_TOKEN, DataForm, Task
from clients.models.huggingface import AdaptedModel, hf
from clients.models.model import Model, check_model, folder_digest, load_vector, trainable
from clients.models.registry import bound_paths, model_named
from clients.training.jobs import evaluate
from clients.training.plain_trainer import PlainTrainer
from clients.training.port import LocalTraining, TrainingJob
from ledger.protocol.errors import ConfigurationError
from tests.clients.adapters.bases import (
    LENGTH,
    ROUNDS,
    TARGETS,
    VOCABULARY,
    command,
    form_of,
    made_data,
    opened_in_peft,
    write_base,
)
from tests.clients.training.made import work_of
from tests.cmfl.commands.conftest import refusal, succeeds
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.xdist_group("adapters")
SETTINGS = LocalTraining(learning_rate=0.05, batch_size=4, local_steps=4)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    return {kind: write_base(folder / kind, kind) for kind in TARGETS}


@pytest.fixture
def base(bases: dict[str, Path]) -> Path:
    return bases["gpt2"]


def named(base: Path, task: Task = "causal-lm", **options: Any) -> Model:
    return model_named("hf", form_of(task), {"path": str(base), "rank": 2, **options})


def trained(model: Model, vector: np.ndarray) -> np.ndarray:
    data = made_data(model.form)
    trainer = PlainTrainer(work_of(model, data.train, data.collate, SETTINGS, "cpu"))
    row = np.zeros(model.dimension, np.float32)
    trainer.train(vector, [TrainingJob(0, bytes(32))], [row])
    return row


def refused(sentence: str, form: DataForm, **options: Any) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        model_named("hf", form, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "task", "dtype"),
    [
        ("gpt2", "causal-lm", "bfloat16"),
        ("gpt2", "classify", "bfloat16"),
        ("bert", "masked-lm", "float32"),
        ("bert", "token-classify", "bfloat16"),
        ("llama", "regress", "float32"),
    ],
)
def test_adapters_and_heads_are_trained(bases: Any, kind: str, task: Task, dtype: str) -> None:
    model = named(bases[kind], task, dtype=dtype, targets=TARGETS[kind])
    check_model(model, made_data(model.form))
    heads = {"classify": "score", "regress": "score", "token-classify": "classifier"}
    for name, _ in model.layout:
        assert ".lora_" in name or f".{heads.get(task, '-')}." in name
    module = model.module()
    assert {p.dtype for _, p in trainable(module)} == {torch.float32}
    start = model.initial(np.random.default_rng(0))
    update = trained(model, start)
    assert np.isfinite(update).all()
    assert update.any()
    assert update.tobytes() == trained(model, start).tobytes()
    data = made_data(model.form)
    before = evaluate(model, start, data.test)
    after = evaluate(model, start - update, data.test)
    assert after.loss < before.loss


def test_adapters_start_without_effect_and_follow_from_the_stream(base: Path) -> None:
    model = named(base)
    first, again, other = (model.initial(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    module = model.module()
    load_vector(module, torch.tensor(first))
    for name, tensor in trainable(module):
        limit = 0 if ".lora_B." in name else tensor.shape[1] ** -0.5
        assert tensor.abs().max() <= limit
    x = torch.tensor(made_data(model.form).test.x)
    from transformers import AutoModelForCausalLM

    plain: Any = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        expected = plain(input_ids=x.clamp(min=0), attention_mask=(x != NO_TOKEN).long()).logits
        # The last digits are those of another order of sums.
        assert torch.allclose(module(x)[x != NO_TOKEN], expected[x != NO_TOKEN], atol=1e-5)


def test_padding_has_no_influence_on_a_sequence(base: Path) -> None:
    for task in ("causal-lm", "classify"):
        module = named(base, task).module()
        short = torch.tensor([[3, 1, 4]])
        long = torch.tensor([[3, 1, 4, *[NO_TOKEN] * 3]])
        with torch.no_grad():
            scores, padded = module(short), module(long)
        assert torch.allclose(scores, padded[:, :3] if task == "causal-lm" else padded, atol=1e-5)


def test_all_modules_of_a_process_share_the_memory_of_the_base(base: Path) -> None:
    model = named(base)
    first, second = model.module(), model.module()
    frozen = [p for p in first.parameters() if not p.requires_grad]
    assert len(frozen) > 20
    for name, tensor in second.named_parameters():
        same = first.get_parameter(name).data_ptr() == tensor.data_ptr()
        assert same != tensor.requires_grad
    before = [p.clone() for p in frozen]
    trained(model, model.initial(np.random.default_rng(0)))
    assert all(torch.equal(p, was) for p, was in zip(frozen, before, strict=True))


def test_the_base_is_bound_by_digest_packages_and_frozen_state(base: Path, tmp_path: Path) -> None:
    digest = folder_digest("path", base)
    packages = f"transformers=={version('transformers')}, peft=={version('peft')}"
    model = named(base, sha256=digest.removeprefix("sha256:"))
    recorded = model.recorded()
    assert recorded["options"]["path"] == digest
    assert recorded["package"] == packages
    assert bound_paths("hf", model.options)["options"]["path"] == digest
    assert model.source == hf.source()
    copied = shutil.copytree(base, tmp_path / "copy")
    again = named(copied)
    assert (again.frozen_state, again.source) == (model.frozen_state, model.source)
    other = write_base(tmp_path / "other", seed=1)
    assert named(other).frozen_state != model.frozen_state


def test_a_base_that_changes_after_binding_is_refused(base: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(base, tmp_path / "copy")
    model = named(copied)
    write_base(copied, seed=1)
    with pytest.raises(ConfigurationError, match=r"options\.path = .* was sha256:.*, and is"):
        model.module()


def test_a_file_that_is_overwritten_changes_no_loaded_base(base: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(base, tmp_path / "copy")
    module = named(copied).module()
    before = {name: p.clone() for name, p in module.named_parameters()}
    weights = copied / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(bytes(weights.stat().st_size))
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())


def test_nothing_is_asked_of_a_network(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    check_model(named(base, alpha=3), made_data(form_of("causal-lm")))


def test_a_base_needs_its_extra(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    refused(r"need the extra \[transformers\]", form_of("causal-lm"), path=str(base))


def test_dropout_of_the_base_is_switched_off(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5)
    module = named(base).module().train()
    x = torch.tensor([[1, 2, 3]])
    assert torch.equal(module(x), module(x))


def test_the_adapters_open_in_peft_with_the_same_logits(base: Path, tmp_path: Path) -> None:
    import transformers

    tasks: tuple[tuple[Task, str], ...] = (
        ("causal-lm", "CausalLM"),
        ("classify", "SequenceClassification"),
    )
    for task, auto in tasks:
        model = named(base, task)
        start = model.initial(np.random.default_rng(0))
        vector = start - trained(model, start)
        module = model.module()
        assert isinstance(module, AdaptedModel)
        load_vector(module, torch.tensor(vector))
        module.save_adapter(tmp_path / task)
        heads = {"num_labels": 3} if task == "classify" else {}
        plain = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(base, **heads)
        plain.config.pad_token_id = 0
        opened = opened_in_peft(plain, tmp_path / task)
        x = torch.tensor(made_data(model.form).test.x)
        x = x[(x != NO_TOKEN).all(1)]
        with torch.no_grad():
            assert torch.allclose(opened(input_ids=x).logits, module(x), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"targets": "c_attn,nowhere"}, r"the base has no layer 'nowhere'; it has .*c_attn"),
        ({"sha256": "0" * 64}, r"sha256 = 0{64}: the digest .* is sha256:[0-9a-f]{64}$"),
        ({"rank": 0}, r"model\.options\.rank: Input should be greater than or equal to 1"),
    ],
)
def test_wrong_settings_of_a_base_are_refused(base: Path, options: Any, sentence: str) -> None:
    refused(sentence, form_of("causal-lm"), path=str(base), **options)


def test_data_that_do_not_fit_a_base_are_refused(base: Path) -> None:
    path = str(base)
    refused(r"length = 13: must be at most 12", form_of("causal-lm", 13), path=path)
    larger = form_of("causal-lm", LENGTH, VOCABULARY + 1)
    refused(r"51 tokens, and the base 50; use the base's tokenizer", larger, path=path)
    refused(r"needs tokens", DataForm((4,), 2), path=path)


def test_folders_that_hold_no_safe_base_are_refused(base: Path, tmp_path: Path) -> None:
    form = form_of("causal-lm")
    refused(r"model\.options\.path is required \(the folder of the base", form)
    refused(r"has no config\.json", form, path=str(tmp_path))
    pickled = shutil.copytree(base, tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    refused(r"is not a base for causal-lm: OSError", form, path=str(pickled))
    damaged = shutil.copytree(base, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"12345678")
    refused(r"is not a base for causal-lm", form, path=str(damaged))
    adapters = shutil.copytree(base, tmp_path / "adapters")
    (adapters / "adapter_config.json").write_text("{}")
    refused(r"contains adapters without a base", form, path=str(adapters))
    coded = shutil.copytree(base, tmp_path / "coded")
    config = json.loads((coded / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}}
    (coded / "config.json").write_text(json.dumps(config))
    (coded / "mine.py").write_text("raise SystemExit('executed')")
    refused(r"is not a base for causal-lm: ValueError", form, path=str(coded))
    headless = write_base(tmp_path / "headless", "llama")
    from transformers import AutoModel

    state = AutoModel.from_pretrained(headless)
    shutil.rmtree(headless)
    state.save_pretrained(headless)
    refused(r"has no weights of 'lm_head'", form, path=str(headless))


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("config.json", {"attn_implementation": "kernels-community/mine"}, "must be eager or sdpa"),
        ("config.json", {"transformers_weights": "adapter_model.bin"}, "transformers_weights is"),
        ("config.json", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ("model.safetensors.index.json", {"weight_map": {"a": "a.bin"}}, "names 'a.bin'"),
        ("model.safetensors.index.json", {"weight_map": {"a": "../a.safetensors"}}, "names '../a"),
        ("model.safetensors.index.json", {}, "has no weight_map"),
    ],
)
def test_files_that_name_code_or_pickles_are_refused(
    base: Path, tmp_path: Path, file: str, content: dict[str, Any], sentence: str
) -> None:
    folder = shutil.copytree(base, tmp_path / "base")
    path = folder / file
    there = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(there | content))
    refused(sentence, form_of("causal-lm"), path=str(folder))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("[" * 2000, "nested more than"), ("[]", "must be a JSON object"), ("{", "is not JSON")],
)
def test_damaged_settings_are_refused(
    base: Path, tmp_path: Path, content: str, sentence: str
) -> None:
    folder = shutil.copytree(base, tmp_path / "base")
    (folder / "generation_config.json").write_text(content)
    refused(sentence, form_of("causal-lm"), path=str(folder))
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(content)
    refused(sentence, form_of("causal-lm"), path=str(folder))


def test_a_base_with_weights_that_are_not_finite_is_refused(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.h.0.attn.c_attn.weight"][0, 0] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = named(folder)
    with pytest.raises(ConfigurationError, match="its loss on the first inputs is nan"):
        check_model(model, made_data(model.form))


def test_a_token_of_padding_that_is_none_is_replaced(base: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(base, tmp_path / "base")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": -1}))
    model = named(folder)
    check_model(model, made_data(model.form))


def test_positions_of_padding_are_not_counted(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base", "roberta")
    fitting = form_of("masked-lm", 10)
    model = model_named("hf", fitting, {"path": str(folder)})
    check_model(model, made_data(fitting))
    refused("length = 11: must be at most 10", form_of("masked-lm", 11), path=str(folder))


_BARE = """
import sys
for name in ("torch", "transformers", "peft", "tokenizers"):
    sys.modules[name] = None
from cmfl.commands.application import main
sys.argv = ["cmfl", *sys.argv[1:]]
sys.exit(main())
"""


def test_a_run_takes_the_plain_path_and_measures_language(folder: Path) -> None:
    run = folder / "home" / "runs" / "run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["decided"] for row in rows] == [True] * ROUNDS
    # Each token has one successor; random logits are worth about log 50.
    assert 0 < rows[-1]["loss"] < 4.5
    assert 0 <= rows[-1]["accuracy"] <= 1
    assert load_configuration(path=run / "config.toml").training.path == "plain"


def test_the_base_is_in_no_blob_and_its_adapters_are_the_vector(folder: Path) -> None:
    sizes = [
        path.stat().st_size for path in (folder / "home" / "blobs").rglob("*") if path.is_file()
    ]
    # Two layers, rank 2, from 16 to 48: 2 * 2 * (16 + 48) numbers of four bytes.
    assert 4 * 256 in sizes
    assert max(sizes) < (folder / "base" / "model.safetensors").stat().st_size / 2


def test_an_audit_needs_neither_torch_nor_transformers(folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _BARE, "audit", "--home", str(folder / "home"), "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["outcome"] == "passed"


def test_updates_of_adapters_are_repeated_as_the_same(folder: Path) -> None:
    base = f"model.options.path={folder / 'base'}"
    result = cmfl.verify_training(folder / "home", data=folder / "rows.jsonl", settings=[base])
    assert result.verdict == "same"
    assert result.counts["same"] == 10 * ROUNDS


def test_a_mean_of_models_opens_in_peft(folder: Path) -> None:
    export = ("model", "export", "--home", folder / "home", "--average", 2, "--json")
    shown = succeeds(*export, "--format", "peft", "--out", folder / "mean").json
    file = succeeds(*export, "--out", folder / "mean.safetensors").json
    assert shown["sha256"] == file["sha256"]
    assert shown["says"] == file["says"]
    assert len(shown["says"]["mean_of"].split()) == 2
    tensors = load((folder / "mean.safetensors").read_bytes())
    written = load((folder / "mean" / "adapter_model.safetensors").read_bytes())
    assert sorted(part.tobytes() for part in written.values()) == sorted(
        part.tobytes() for part in tensors.values()
    )


def test_an_exported_file_is_evaluated_with_its_perplexity(folder: Path) -> None:
    home, out = folder / "home", folder / "model.safetensors"
    succeeds("model", "export", "--home", home, "--out", out)
    quality = succeeds("model", "evaluate", out, "--home", home, "--json").json
    rows = (home / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
    assert quality["loss"] == json.loads(rows[-1])["loss"]
    assert quality["perplexity"] == pytest.approx(np.exp(quality["loss"]))


def test_other_formats_and_models_without_adapters_are_not_exported(folder: Path) -> None:
    out = folder / "nothing"
    export = ("model", "export", "--home", folder / "home", "--out", out)
    assert "--format pickle: must be safetensors or peft" in refusal(*export, "--format", "pickle")
    elsewhere = ("--address", f"0x{'11' * 20}", "--format", "peft")
    assert "remove --address" in refusal(*export, *elsewhere)
    plain = folder / "plain"
    succeeds("run", "--preset", "smoke", "--home", plain, "--set", "protocol.rounds=1", "--json")
    asked = ("model", "export", "--home", plain, "--out", out, "--format", "peft")
    assert "the model 'softmax' has no adapters" in refusal(*asked)
    assert not out.exists()


def test_the_digest_of_a_base_may_be_stated(folder: Path) -> None:
    printed = succeeds("model", "digest", folder / "base").out.strip()
    assert len(printed) == 64
    once = ("protocol.rounds=1", "machine.ledger=memory")
    stated = command(folder, f"model.options.sha256={printed}", *once, home="b")
    succeeds(*stated, "--json")
    assert "is not a folder" in refusal("model", "digest", folder / "none")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["training.path=lockstep"], "the task is causal-lm, and lockstep classifies alone"),
        (["malice.attack=label-flip", "malice.malicious_rate=0.2"], "label-flip needs classes"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, settings: list[str], sentence: str) -> None:
    assert sentence in refusal(*command(folder, *settings, home="refused"))
    assert not (folder / "refused" / "runs").exists()


def test_a_worker_names_its_own_copy_of_the_base(folder: Path) -> None:
    configuration = load_configuration(path=folder / "home" / "runs" / "run" / "config.toml")
    assert own_code_settings(configuration) == (f"model.options.path={folder / 'base'}",)
