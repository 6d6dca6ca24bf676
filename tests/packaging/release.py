"""A release in a folder: `python -m tests.packaging.release FOLDER --key key.pem`.

The folder gets source distribution, wheel, SHA256SUMS and `attestation.json`: an in-toto statement
of a release, which names the other files and the commit, in a DSSE envelope as
`cmfl export attestation` writes it. `--verify` with the public key builds the wheel again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

from cmfl.provenance.documents import MAX_BYTES, PAYLOAD_TYPE, STATEMENT, json_bytes
from cmfl.provenance.verify import require_signed_envelope, signed_envelope
from ledger.audit.proofs.documents import parse_document
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import CmflError
from tests.packaging.environments import ROOT, CommandFailedError, build, git
from tests.packaging.metadata import NAME, project

SUMS = "SHA256SUMS"
ATTESTATION = "attestation.json"


class NotReleasableError(CmflError):
    """The checkout, or a folder, is not that of a release."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.release")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--key", type=Path, required=True, help="private key; public to verify")
    parser.add_argument("--verify", action="store_true", help="verify a folder; write nothing")
    given = parser.parse_args()
    try:
        require_releasable()
        with tempfile.TemporaryDirectory(prefix="cmfl-release-") as place:
            if given.verify:
                require_attested(given.folder, given.key)
                require_same_wheel(given.folder, build(Path(place))[1])
            else:
                given.folder.mkdir(parents=True)
                for path in build(Path(place)):
                    shutil.copy(path, given.folder)
                attest(given.folder, given.key)
    except (CmflError, CommandFailedError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    state = "verified" if given.verify else "written"
    sys.stdout.write(f"{given.folder}: release {project()['version']} {state}\n")
    return 0


def require_releasable() -> None:
    """Accept a checkout without changes whose tag and changelog name the version."""
    version = project()["version"]
    if changed := git("status", "--porcelain", "--untracked-files=no"):
        raise NotReleasableError(f"the checkout has changes:\n{changed}")
    if f"v{version}" not in git("tag", "--points-at", "HEAD").split():
        raise NotReleasableError(f"the commit has no tag v{version}")
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if headings[:1] != [version]:
        raise NotReleasableError(f"CHANGELOG.md begins with {headings[:1]}, must be {version}")


def attest(folder: Path, private_key: Path) -> None:
    """Write the checksums of the files in a folder, and the signed statement."""
    sums = "".join(f"{digest}  {name}\n" for name, digest in digests(folder).items())
    (folder / SUMS).write_text(sums, "utf-8")
    envelope = signed_envelope(json_bytes(statement(folder)), PAYLOAD_TYPE, private_key)
    (folder / ATTESTATION).write_bytes(json_bytes(envelope))


def require_attested(folder: Path, public_key: Path) -> None:
    """Accept a folder whose statement a key has signed, and whose files are those it names."""
    envelope = parse_document((folder / ATTESTATION).read_bytes(), MAX_BYTES)
    require_signed_envelope(envelope, public_key)
    if json.loads(b64decode(envelope["payload"])) != statement(folder):
        raise NotReleasableError(f"{folder}: {ATTESTATION} is of other files or another commit")


def require_same_wheel(folder: Path, wheel: Path) -> None:
    if (folder / wheel.name).read_bytes() != wheel.read_bytes():
        raise NotReleasableError(f"{folder}: this commit gives another {wheel.name}")


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of all files of a release, but for the statement about them."""
    files = (path for path in sorted(folder.iterdir()) if path.name != ATTESTATION)
    return {path.name: sha256(path.read_bytes()).hex() for path in files}


def statement(folder: Path) -> dict[str, Any]:
    """Return in-toto's statement of a release, by the digests of its files and its commit."""
    files = [{"name": name, "digest": {"sha256": it}} for name, it in digests(folder).items()]
    commit = {"name": "source", "digest": {"gitCommit": git("rev-parse", "HEAD").strip()}}
    return {
        "_type": STATEMENT,
        "subject": [*files, commit],
        "predicateType": "https://in-toto.io/attestation/release/v0.1",
        "predicate": {"purl": f"pkg:pypi/{NAME}@{project()['version']}"},
    }


if __name__ == "__main__":
    sys.exit(main())
