"""What the wheel is built from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.packaging.environments import copy_tracked


def test_left_over_files_of_earlier_builds_are_not_packed(tmp_path: Path) -> None:
    checkout, copy = tmp_path / "checkout", tmp_path / "copy"
    kept, removed = checkout / "cmfl" / "kept.py", checkout / "cmfl" / "removed.py"
    kept.parent.mkdir(parents=True)
    for file in (kept, removed):
        file.write_text("VALUE = 1\n")
    for words in (("init", "--quiet"), ("add", "--all")):
        subprocess.run(["git", "-C", checkout, *words], check=True)
    left_over = checkout / "build" / "lib" / "cmfl" / "removed.py"
    left_over.parent.mkdir(parents=True)
    removed.rename(left_over)
    kept.write_text("VALUE = 2\n")
    copy_tracked(checkout, copy)
    assert [path.relative_to(copy) for path in copy.rglob("*.py")] == [kept.relative_to(checkout)]
    assert (copy / "cmfl" / "kept.py").read_text() == "VALUE = 2\n"
