"""`cmfl model export --sign` and signed statements: OpenSSF's verifier, and attacks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cmfl.provenance.verify import SignatureMismatchError, require_signed_folder
from ledger.protocol.errors import ConfigurationError
from tests.cmfl.commands.conftest import (
    KNOWN_AUDIT,
    SHARED,
    cmfl,
    decided_rounds,
    refusal,
    succeeds,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

pytestmark = SHARED


class KeyPair:
    def __init__(
        self, folder: Path, name: str, key: PrivateKeyTypes, password: bytes = b""
    ) -> None:
        self.private, self.public = folder / f"{name}.pem", folder / f"{name}.pub"
        secret = BestAvailableEncryption(password) if password else NoEncryption()
        self.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
        form = PublicFormat.SubjectPublicKeyInfo
        self.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, form))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    KeyPair(folder, "own", ec.generate_private_key(ec.SECP256R1()))
    KeyPair(folder, "foreign", ec.generate_private_key(ec.SECP256R1()))
    KeyPair(folder, "ethereum", ec.generate_private_key(ec.SECP256K1()))
    KeyPair(folder, "rsa", rsa.generate_private_key(65537, 2048))
    KeyPair(folder, "locked", ec.generate_private_key(ec.SECP256R1()), b"password")
    return folder


@pytest.fixture(scope="module")
def signed(home: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("signed") / "model"
    succeeds("model", "export", "--home", home, "--out", out, "--sign", keys / "own.pem")
    return out


@pytest.fixture
def model(signed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(signed, tmp_path / "model")


def verified(file: Path, home: Path, key: Path | None) -> tuple[int, dict[str, Any]]:
    named = () if key is None else ("--key", key)
    result = cmfl("verify", "attestation", file, "--home", home, *named, "--json")
    assert not result.err, result
    return result.code, result.json


def accepted_by_openssf(folder: Path, key: Path) -> bool:
    from model_signing.verifying import Config

    try:
        Config().use_elliptic_key_verifier(public_key=key).verify(folder, folder / "model.sig")
    except Exception:  # noqa: BLE001 - it documents ValueError, and raises what JSON leads to
        return False
    return True


def test_a_mean_is_not_signed_as_a_model_of_the_chain(
    home: Path, keys: Path, tmp_path: Path
) -> None:
    export = ("model", "export", "--home", home, "--out", tmp_path / "model")
    sentence = refusal(*export, "--average", 2, "--sign", keys / "own.pem")
    assert sentence.startswith("--average 2 with --sign: ")
    assert not any(tmp_path.iterdir())


def test_openssfs_command_accepts_a_signed_model(signed: Path, keys: Path, home: Path) -> None:
    assert sorted(path.name for path in signed.iterdir()) == ["model.safetensors", "model.sig"]
    arguments = (signed, "--signature", signed / "model.sig", "--public_key", keys / "own.pub")
    command = [sys.executable, "-m", "model_signing", "verify", "key", *map(str, arguments)]
    theirs = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (theirs.returncode, theirs.stdout) == (0, "Verification succeeded\n")
    code, result = verified(signed, home, keys / "own.pub")
    assert (code, result["state"], result["kind"]) == (0, "current", "signed model")


def changes(model: Path) -> Iterator[tuple[str, Path]]:
    """Yield what is wrong with a folder after each of these changes, and a copy that has it."""
    for file in sorted(model.iterdir()):
        for at in (0, file.stat().st_size // 2, file.stat().st_size - 1):
            copy = shutil.copytree(model, model.parent / f"{file.name}-{at}")
            data = bytearray(file.read_bytes())
            data[at] ^= 1
            (copy / file.name).write_bytes(data)
            yield f"byte {at} of {file.name}", copy
        copy = shutil.copytree(model, model.parent / f"{file.name}-gone")
        (copy / file.name).unlink()
        if file.name != "model.sig":
            yield f"no {file.name}", copy


@KNOWN_AUDIT
def test_each_changed_file_is_refused_by_theirs_and_ours(
    model: Path, keys: Path, home: Path
) -> None:
    for change, folder in changes(model):
        assert not accepted_by_openssf(folder, keys / "own.pub"), change
        code, result = verified(folder, home, keys / "own.pub")
        assert (code, result["state"]) == (1, "false"), change
        assert "signature" in {each["field"] for each in result["differences"]}, change


@pytest.mark.parametrize("name", ["notes.txt", ".git"])
def test_no_file_is_added_to_a_signed_model(name: str, model: Path, keys: Path) -> None:
    (model / name).write_text("pickle")
    with pytest.raises(SignatureMismatchError, match="Extra files"):
        require_signed_folder(model, keys / "own.pub")


@KNOWN_AUDIT
def test_links_and_names_that_lead_out_are_refused(model: Path, keys: Path, home: Path) -> None:
    file = model / "model.safetensors"
    moved = file.rename(model.parent / "elsewhere")
    file.symlink_to(moved)
    code, result = verified(model, home, keys / "own.pub")
    assert (code, result["state"]) == (1, "false")
    assert not accepted_by_openssf(model, keys / "own.pub")
    file.unlink()
    moved.rename(file)
    bundle = json.loads((model / "model.sig").read_text())
    statement = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
    statement["predicate"]["resources"][0]["name"] = "../model.safetensors"
    bundle["dsseEnvelope"]["payload"] = b64encode(json.dumps(statement).encode()).decode()
    (model / "model.sig").write_text(json.dumps(bundle))
    assert verified(model, home, keys / "own.pub")[0] == 1


@KNOWN_AUDIT
def test_a_folder_with_a_link_is_not_signed(model: Path, keys: Path, home: Path) -> None:
    from cmfl.provenance.verify import sign_folder

    (model / "link").symlink_to(model / "model.sig")
    with pytest.raises(ConfigurationError, match="cannot be signed"):
        sign_folder(model, keys / "own.pem")
    (model / "link").unlink()
    (model / "model.safetensors").write_bytes(b"no tensors")
    sign_folder(model, keys / "own.pem")
    code, result = verified(model, home, keys / "own.pub")
    assert (code, [each["field"] for each in result["differences"]]) == (1, ["model.safetensors"])


@KNOWN_AUDIT
def test_a_signature_over_another_folder_is_refused(
    model: Path, keys: Path, home: Path, tmp_path: Path
) -> None:
    number, other = decided_rounds(home)[0]["round"], tmp_path / "other"
    asked = ("model", "export", "--home", home, "--round", number, "--out", other)
    succeeds(*asked, "--sign", keys / "own.pem")
    code, result = verified(other, home, keys / "own.pub")
    assert (code, result["state"], result["round"]) == (0, "stale", number)
    shutil.copy(other / "model.sig", model / "model.sig")
    assert verified(model, home, keys / "own.pub")[0] == 1
    assert not accepted_by_openssf(model, keys / "own.pub")


@KNOWN_AUDIT
def test_a_true_signature_over_a_false_model_is_false(model: Path, keys: Path, home: Path) -> None:
    from cmfl.provenance.verify import sign_folder

    data = bytearray((model / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (model / "model.safetensors").write_bytes(data)
    (model / "model.sig").unlink()
    sign_folder(model, keys / "own.pem")
    assert accepted_by_openssf(model, keys / "own.pub")
    code, result = verified(model, home, keys / "own.pub")
    assert (code, result["state"]) == (1, "false")
    assert [each["field"] for each in result["differences"]] == ["model.safetensors"]


@KNOWN_AUDIT
def test_a_signature_of_another_key_is_refused(signed: Path, keys: Path, home: Path) -> None:
    code, result = verified(signed, home, keys / "foreign.pub")
    assert (code, result["state"]) == (1, "false")
    assert [each["field"] for each in result["differences"]] == ["signature"]
    code, result = verified(signed, home, None)
    assert (code, result["state"]) == (3, "unconfirmed")


@pytest.mark.parametrize(
    ("name", "rule"), [("ethereum", "the key is on secp256k1"), ("locked", "the key is encrypted")]
)
def test_keys_that_cannot_sign_are_refused_first(
    name: str, rule: str, keys: Path, home: Path, tmp_path: Path
) -> None:
    key, out = keys / f"{name}.pem", tmp_path / "out"
    assert rule in refusal("model", "export", "--home", home, "--out", out, "--sign", key)
    assert rule in refusal("export", "attestation", "--home", home, "--out", out, "--sign", key)
    assert not out.exists()


def test_a_private_key_is_no_public_one(signed: Path, keys: Path, home: Path) -> None:
    asked = ("verify", "attestation", signed, "--home", home, "--key", keys / "own.pem")
    assert "is not a PEM key of the required kind" in refusal(*asked)


@KNOWN_AUDIT
def test_nothing_is_added_to_a_signature(model: Path, keys: Path, home: Path) -> None:
    bundle = json.loads((model / "model.sig").read_text())
    statement = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
    assert [each["name"] for each in statement["subject"]] == ["model"]
    for part in (bundle, bundle["verificationMaterial"], bundle["dsseEnvelope"]):
        part["note"] = "unsigned"
        (model / "model.sig").write_text(json.dumps(bundle))
        assert verified(model, home, keys / "own.pub")[0] == 1
        del part["note"]
    (model / "model.sig").write_text(json.dumps(bundle, indent=1))
    assert verified(model, home, keys / "own.pub")[0] == 0


@KNOWN_AUDIT
@pytest.mark.parametrize("data", [b"", b"{}", b'{"a":' * 5_000])
def test_what_is_no_signature_is_refused(data: bytes, model: Path, keys: Path, home: Path) -> None:
    (model / "model.sig").write_bytes(data)
    code, result = verified(model, home, keys / "own.pub")
    assert (code, result["state"]) == (1, "false")


@KNOWN_AUDIT
def test_a_statement_is_signed_in_an_envelope(home: Path, keys: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    out, plain = tmp_path / "signed", tmp_path / "plain"
    succeeds("export", "attestation", "--home", home, "--out", out, "--sign", keys / "own.pem")
    succeeds("export", "attestation", "--home", home, "--out", plain)
    envelope = json.loads(out.read_text())
    assert b64decode(envelope["payload"]) == plain.read_bytes()
    key = SSlibKey.from_crypto(load_pem_public_key((keys / "own.pub").read_bytes()))
    Envelope.from_dict(json.loads(out.read_text())).verify([key], 1)
    states = {
        keys / "own.pub": (0, "current"),
        keys / "foreign.pub": (1, "false"),
        None: (3, "unconfirmed"),
    }
    for named, expected in states.items():
        code, result = verified(out, home, named)
        assert (code, result["state"]) == expected
    assert verified(plain, home, keys / "own.pub")[0] == 1
    wrong: list[Any] = [[], {}, [{}], [{"sig": 3, "keyid": "x"}], envelope["signatures"] * 2]
    wrong += [
        [envelope["signatures"][0] | {"more": 1}],
        [envelope["signatures"][0] | {"keyid": "x"}],
    ]
    for signatures in wrong:
        out.write_text(json.dumps(envelope | {"signatures": signatures}))
        assert verified(out, home, keys / "own.pub")[0] == 1
    payload = envelope["payload"].replace("A", "B", 1)
    out.write_text(json.dumps(envelope | {"payload": payload}))
    asked = ("verify", "attestation", out, "--home", home, "--key", keys / "own.pub")
    assert cmfl(*asked).code in {1, 2}
