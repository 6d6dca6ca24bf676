"""Tests in several processes: each runs once, and whatever goes wrong in a process is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tests.patience import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[1]
COMMON = """\
    import gc
    import os
    import pathlib
    import time

    import pytest
    from tests.patience import wait_until

    FOLDER = pathlib.Path(__file__).parent

    def write(name, word):
        with (FOLDER / name).open("a") as file:
            file.write(f"{os.getpid()} {word}\\n")

    def wait_for(name):
        wait_until((FOLDER / name).exists)
"""
FIXTURE = """\
    @pytest.fixture(scope="session", autouse=True)
    def session():
        write("begun", "")
        yield
        write("ended", "")
"""


def begun(folder: Path, *options: str, **modules: str) -> subprocess.Popen[str]:
    """Return a started pytest with two processes that runs tests of these modules."""
    (folder / "common.py").write_text(dedent(COMMON), "utf-8")
    (folder / "conftest.py").write_text(f"from common import *\n\n{dedent(FIXTURE)}", "utf-8")
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(f"from common import *\n\n{dedent(text)}", "utf-8")
    where = ("-c", os.devnull, f"--rootdir={folder}", f"--basetemp={folder / 'temporary'}")
    plugins = ("-p", "tests.forked_tests", "-p", "no:cacheprovider")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--processes=2", *where, *plugins, *options],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def outcome(folder: Path, *options: str, **modules: str) -> tuple[int, str]:
    """Return the exit code of such a pytest, and what it printed."""
    with begun(folder, *options, **modules) as process:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, output


def lines(path: Path) -> list[list[str]]:
    return [line.split(" ") for line in path.read_text("utf-8").splitlines()]


def test_each_test_runs_once_and_a_group_in_one_process(tmp_path: Path) -> None:
    code, output = outcome(
        tmp_path,
        a="""\
            pytestmark = pytest.mark.group("both")

            def test_meets():
                write("a", "")
                wait_for("b")

            def test_notes():
                write("notes", "a")
                wait_for("ended")  # the other process has taken what is left
        """,
        b="""\
            def test_meets():
                write("b", "")
                wait_for("a")

            @pytest.mark.parametrize("number", range(100))
            def test_notes(number):
                write("notes", f"b{number}")
        """,
        c="""\
            pytestmark = pytest.mark.group("both")

            def test_notes(tmp_path):
                write("notes", "c")
        """,
    )
    assert code == 0, output
    assert output.count("\nPASSED ") == output.partition("=")[0].count(".") == 104
    process_of = {word: process for process, word in lines(tmp_path / "notes")}
    assert Counter(word for _, word in lines(tmp_path / "notes")) == Counter(
        ["a", "c", *(f"b{number}" for number in range(100))]
    )
    assert process_of["a"] == process_of["c"]
    assert len({process_of[f"b{number}"] for number in range(100)} - {process_of["a"]}) == 1
    assert {process for process, _ in lines(tmp_path / "ended")} == set(process_of.values())
    assert len(lines(tmp_path / "begun")) == len(lines(tmp_path / "ended")) == 2


def test_failures_errors_and_skips_are_reported_with_their_output(tmp_path: Path) -> None:
    code, output = outcome(
        tmp_path,
        a="""\
            def test_fails():
                print("words", 1)
                write("a", "")
                wait_for("b")
                print("more", 1)
                assert [1, 2] == [1, 3]

        """,
        b="""\
            def test_passes():
                print("words", 2)
                write("b", "")
                wait_for("a")
                print("more", 2)

            @pytest.fixture
            def fails():
                raise ValueError("nothing to set up")

            @pytest.fixture
            def fails_later():
                yield
                raise ValueError("nothing to clear")

            def test_begins(fails):
                pass

            def test_ends(fails_later):
                pass

            def test_is_skipped():
                pytest.skip("no part")
        """,
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 2 passed, 1 skipped, 2 errors" in output
    assert output.count("At index 1 diff: 2 != 3") >= 1, "assertions are explained"
    assert "words 1\nmore 1\n" in output
    assert "words 2\nmore 2\n" in output
    assert "nothing to set up" in output
    assert "nothing to clear" in output
    assert "no part" in output


def test_the_test_at_which_a_process_ends_is_named(tmp_path: Path) -> None:
    code, output = outcome(
        tmp_path,
        a="""\
            def test_ends():
                os.kill(os.getpid(), 9)

            def test_is_not_run():
                pass
        """,
        b="""\
            def test_passes():
                wait_for("begun")
        """,
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "its process ended here with code -9, and ran no other test" in output
    assert "FAILED test_a.py::test_ends" in output
    assert "1 failed, 1 passed" in output


def test_what_fails_at_the_end_of_a_process_is_reported(tmp_path: Path) -> None:
    code, output = outcome(
        tmp_path,
        a="""\
            @pytest.fixture(scope="session")
            def fails():
                yield
                raise ValueError("nothing to clear")

            def test_passes(fails):
                pass
        """,
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "nothing to clear" in output
    assert "1 failed, 1 passed" in output


def test_an_interrupt_in_one_process_loses_no_test_silently(tmp_path: Path) -> None:
    code, output = outcome(
        tmp_path,
        a="""\
            def test_is_interrupted():
                raise KeyboardInterrupt

            def test_is_not_run():
                pass
        """,
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "its process ended here with code 130" in output
    assert "FAILED test_a.py::test_is_interrupted" in output


def test_no_test_begins_after_as_many_failures_as_allowed(tmp_path: Path) -> None:
    code, output = outcome(
        tmp_path,
        "-x",
        a="""\
            def test_fails():
                assert False

            def test_waits():
                (work,) = [one for one in gc.get_objects() if type(one).__name__ == "_Work"]
                wait_until(lambda: work._stopped.value)

            def test_notes():
                write("notes", "")
        """,
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in output
    assert not (tmp_path / "notes").exists()
    assert len(lines(tmp_path / "begun")) == len(lines(tmp_path / "ended"))


def test_what_cannot_be_collected_begins_nothing(tmp_path: Path) -> None:
    code, output = outcome(
        tmp_path, a="import nothing_of_that_name", b="def test_notes(): write('notes', '')"
    )
    assert code == pytest.ExitCode.INTERRUPTED
    assert "nothing_of_that_name" in output
    assert not (tmp_path / "notes").exists()


def test_an_interrupt_ends_all_processes_and_their_fixtures(tmp_path: Path) -> None:
    waits = """\
        def test_waits():
            write("waiting", "")
            time.sleep(100)
    """
    with begun(tmp_path, a=waits, b=waits) as process:
        waiting = tmp_path / "waiting"
        wait_until(lambda: waiting.is_file() and len(lines(waiting)) == 2)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert len(lines(tmp_path / "ended")) == 2
    assert "Traceback" not in output
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
