"""A release's checksums and attestation, of files that stand for wheel and source distribution."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from cmfl.provenance.verify import SignatureMismatchError
from tests.cmfl.commands.test_signed_models import KeyPair
from tests.packaging.release import SUMS, NotReleasableError, attest, require_attested


def test_a_release_is_its_files_its_commit_and_its_key(tmp_path: Path) -> None:
    own = KeyPair(tmp_path, "own", ec.generate_private_key(ec.SECP256R1()))
    foreign = KeyPair(tmp_path, "foreign", ec.generate_private_key(ec.SECP256R1()))
    folder = tmp_path / "dist"
    folder.mkdir()
    wheel = folder / "cmfl_ledger-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    attest(folder, own.private)
    require_attested(folder, own.public)
    with pytest.raises(SignatureMismatchError):
        require_attested(folder, foreign.public)
    for path in (folder / SUMS, wheel, folder / "more.whl"):
        kept = path.read_bytes() if path.exists() else b""
        path.write_bytes(kept + b"x")
        with pytest.raises(NotReleasableError, match="other files"):
            require_attested(folder, own.public)
        path.write_bytes(kept)
