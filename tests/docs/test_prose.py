"""`.ci/prose.py`: a count of hits may fall, and never rise."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / ".ci" / "prose.py"


def lint(tree: Path, page: str, *words: str) -> tuple[int, str]:
    (tree / ".ci").mkdir(exist_ok=True)
    script = shutil.copy(SCRIPT, tree / ".ci")
    (tree / "README.md").write_text(f"# Nobody\n\n{page}\n\n`nobody` is code here.\n")
    command = [sys.executable, str(script), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_a_count_may_fall_and_not_rise(tmp_path: Path) -> None:
    one, two = "Nobody reads this.", "Nobody reads this to anybody."
    codes = [lint(tmp_path, page, "--write")[0] for page in (two, one, two)]
    assert codes == [0, 0, 1]
    code, shown = lint(tmp_path, two)
    assert (code, "README.md:3: README W1" in shown, "no history" in shown) == (1, True, True)
    assert lint(tmp_path, one)[0] == 0


def test_a_subject_without_area_and_verb_is_found(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "init", "-q"], check=True)
    lint(tmp_path, "A page.", "--write")
    for subject, code in (("docs: name the page", 0), ("Fixed the page", 1)):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
        assert lint(tmp_path, "A page.")[0] == code
