"""The files of others: NOTICE lists each with its hash, and its licence stands beside it."""

from __future__ import annotations

import hashlib
import re

from tests.packaging.metadata import ROOT, project

NOTICE = (ROOT / "NOTICE").read_text("utf-8")
LISTED = {
    path: digest for digest, path in re.findall(r"^ +([0-9a-f]{64})  (\S+)$", NOTICE, re.MULTILINE)
}
FOLDERS = ("api/web/vendor", "tests/api/web/vendor")


def test_the_notice_lists_every_file_of_others() -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    assert len(files) > 8
    assert set(LISTED) == files


def test_every_file_of_others_is_unchanged() -> None:
    for path, digest in LISTED.items():
        assert hashlib.sha256((ROOT / path).read_bytes()).hexdigest() == digest, path


def test_every_origin_has_version_licence_and_a_licence_file() -> None:
    parts = NOTICE.split("\n\n")
    origins = [part for part in parts if "Origin: " in part]
    assert len(origins) == 4
    for origin in origins:
        assert re.match(r"\S+ \d+\.\d+\.\d+, Copyright ", origin)
        assert re.search(
            r"^Origin: package \S+ of .*; source at https://\S+$", origin, re.MULTILINE
        )
        assert re.search(r"^Licence: (MIT|MPL-2\.0|Apache-2\.0)$", origin, re.MULTILINE)
        assert re.search(r"/LICENSE$", origin, re.MULTILINE)


def test_the_licence_is_named_with_its_address() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert project()["license"] in text
    assert "https://www.apache.org/licenses/LICENSE-2.0" in text
    assert len(text.split()) < 100
    assert {"LICENSE", "NOTICE"} < set(project()["license-files"])
