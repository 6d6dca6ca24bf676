"""Validation of an RO-Crate by roc-validator, in an environment of its own; see `make crate`.

    python tests/packaging/validate_crate.py CRATE [CONTEXT]

The validator reads RO-Crate's JSON-LD context from w3id.org. Where that is not reached, CONTEXT is
a copy of it, such as lib/context.json in npm's package `ro-crate`, which is served in its place.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from rocrate_validator import services
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.utils import document_loader, http

PROFILES = {"ro-crate-1.2": True, "process-run-crate-0.5": False}
"""Whether the profiles that one extends are checked: Process Run Crate extends RO-Crate 1.1."""


class ServedContext:
    status_code, from_cache, headers = 200, True, {"Content-Type": "application/ld+json"}

    def __init__(self, text: str) -> None:
        self.text, self.content = text, text.encode()

    def json(self) -> Any:
        return json.loads(self.text)

    def raise_for_status(self) -> None:
        """Accept the answer."""


def serve(context: Path) -> None:
    """Answer requests for a context of RO-Crate with a copy, and none else."""
    answer = ServedContext(context.read_text("utf-8"))

    def get(_: Any, url: str, *_arguments: Any, **_options: Any) -> ServedContext:
        if "/ro/crate/" not in url:
            raise RuntimeError(f"{url}: only the context is served")
        return answer

    for name in ("get", "head", "fetch_fresh"):
        setattr(type(http.HttpRequester()), name, get)
    assert document_loader.resolve_remote_document("https://w3id.org/ro/crate/1.2/context")


def violations(crate: Path) -> list[str]:
    """Return the requirements of the profiles that a crate does not meet."""
    found = []
    for profile, inherits in PROFILES.items():
        settings = ValidationSettings(
            rocrate_uri=str(crate),
            profile_identifier=profile,
            requirement_severity=Severity.REQUIRED,
            enable_profile_inheritance=inherits,
            skip_availability_check=True,
        )
        issues = services.validate(settings).get_issues(Severity.REQUIRED)
        found += [f"{issue.check.identifier}: {issue.message}" for issue in issues]
    return found


def main(crate: Path, context: Path | None) -> int:
    """Validate a crate, and copies of it that must be refused; return the exit code."""
    if context is not None:
        serve(context)
    found = violations(crate)
    print(f"{', '.join(PROFILES)}: {found or 'all requirements are met'}")
    metadata = (crate / "ro-crate-metadata.json").read_text("utf-8")
    for old, new in (('"instrument"', '"tool"'), ('"datePublished"', '"date"')):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "crate")
            shutil.copytree(crate, copy)
            (copy / "ro-crate-metadata.json").write_text(metadata.replace(old, new), "utf-8")
            refused = violations(copy)
        print(f"with {new} for {old}: {len(refused)} requirements are not met")
        found += [] if refused else [f"{new} for {old} is accepted"]
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
