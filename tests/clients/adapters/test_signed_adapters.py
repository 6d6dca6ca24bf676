"""Signed adapters: the base that they were trained on is under the signature, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from safetensors.numpy import load_file, save_file

from cmfl.provenance.verify import sign_folder
from tests.clients.adapters.bases import opened_in_peft, write_base
from tests.cmfl.commands.conftest import cmfl, refusal, succeeds

pytestmark = pytest.mark.xdist_group("adapters")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key.pem"
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture(scope="module", params=["peft", "safetensors"])
def signed(
    request: pytest.FixtureRequest,
    folder: Path,
    key: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    out = tmp_path_factory.mktemp("signed") / "model"
    asked = ("model", "export", "--home", folder / "home", "--format", request.param)
    succeeds(*asked, "--out", out, "--sign", key)
    return out


def state(model: Path, folder: Path, key: Path) -> tuple[int, str, set[str]]:
    asked = ("verify", "attestation", model, "--home", folder / "home", "--json")
    result = cmfl(*asked, "--key", key.with_suffix(".pub"))
    assert not result.err, result
    fields = {each["field"] for each in result.json["differences"]}
    return result.code, result.json["state"], fields


def accepted_by_openssf(model: Path, key: Path) -> bool:
    from model_signing.verifying import Config

    config = Config().use_elliptic_key_verifier(public_key=key.with_suffix(".pub"))
    try:
        config.verify(model, model / "model.sig")
    except ValueError:
        return False
    return True


def test_the_base_is_under_the_signature(
    signed: Path, folder: Path, key: Path, tmp_path: Path
) -> None:
    assert accepted_by_openssf(signed, key)
    assert state(signed, folder, key) == (0, "current", set())
    files = [path.relative_to(signed) for path in signed.rglob("*") if path.is_file()]
    assert {path.as_posix() for path in files} > {"base/config.json", "base/model.safetensors"}
    for file in files:
        model = shutil.copytree(signed, tmp_path / "model")
        data = bytearray((model / file).read_bytes())
        data[len(data) // 2] ^= 1
        (model / file).write_bytes(data)
        code, found, fields = state(model, folder, key)
        assert (code, found) == (1, "false"), file
        assert "signature" in fields, file
        if file.name != "model.sig":
            assert not accepted_by_openssf(model, key), file
        if file.parts[0] == "base":
            assert "base" in fields
        shutil.rmtree(model)


def test_a_signed_folder_opens_in_transformers_and_peft(signed: Path) -> None:
    if not (signed / "adapter_config.json").exists():
        return
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(signed / "base")
    opened = opened_in_peft(base, signed)
    names = [name for name, _ in opened.named_parameters() if "lora_" in name]
    assert len(names) == len(load_file(signed / "adapter_model.safetensors"))


def test_another_base_or_adapter_is_false_whoever_signs_it(
    signed: Path, folder: Path, key: Path, tmp_path: Path
) -> None:
    def signed_again(name: str) -> Path:
        model = shutil.copytree(signed, tmp_path / name)
        (model / "model.sig").unlink()
        return model

    other = signed_again("other")
    write_base(other / "base", seed=1)
    sign_folder(other, key)
    assert accepted_by_openssf(other, key)
    assert state(other, folder, key) == (1, "false", {"base"})
    without = signed_again("without")
    shutil.rmtree(without / "base")
    sign_folder(without, key)
    assert state(without, folder, key) == (1, "false", {"base"})
    if not (signed / "adapter_config.json").exists():
        return
    unread = signed_again("unread")
    (unread / "adapter_config.json").write_text("[]")
    (unread / "adapter_model.safetensors").write_bytes(b"")
    sign_folder(unread, key)
    found = {"adapter_config.json", "adapter_model.safetensors"}
    assert state(unread, folder, key) == (1, "false", found)
    scaled = signed_again("scaled")
    file = scaled / "adapter_config.json"
    settings = json.loads(file.read_text())
    assert settings["base_model_name_or_path"] == "base"
    file.write_text(json.dumps(settings | {"r": 4}))
    tensors = load_file(scaled / "adapter_model.safetensors")
    changed = {name: 2 * tensor for name, tensor in tensors.items()}
    save_file(changed, scaled / "adapter_model.safetensors")
    sign_folder(scaled, key)
    found = {"adapter_config.json:r", "adapter_model.safetensors"}
    assert state(scaled, folder, key) == (1, "false", found)


def test_a_base_that_is_not_the_runs_is_not_signed(folder: Path, key: Path, tmp_path: Path) -> None:
    home = shutil.copytree(folder / "home", tmp_path / "home")
    configuration = home / "runs" / "run" / "config.toml"
    base, out = folder / "base", tmp_path / "out"
    moved = base.rename(folder / "moved")
    write_base(base, seed=1)
    try:
        for form, sentence in (
            ("peft", "its file was sha256:"),
            ("safetensors", "the base's digest"),
        ):
            asked = ("model", "export", "--home", home, "--format", form, "--out", out)
            assert sentence in refusal(*asked, "--sign", key)
            assert not out.exists()
    finally:
        shutil.rmtree(base)
        moved.rename(base)
    assert str(base) in configuration.read_text()
    address = ("--address", f"0x{'11' * 20}")
    assert cmfl("model", "export", "--home", home, "--out", out, "--sign", key, *address).code == 2
