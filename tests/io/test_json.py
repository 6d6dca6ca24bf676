"""A document that is nested too deeply is refused, whatever the interpreter's limit is."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from ledger.io.json import parse_json


@pytest.mark.parametrize("opening", ["[", '{"a":', '["\\"]]]",', '[[],{"]":1},'])
def test_a_document_too_deep_is_refused_and_ends_no_process(opening: str) -> None:
    code = "import sys; sys.setrecursionlimit(100_000); "
    code += f"from ledger.io.json import parse_json; parse_json({opening!r} * 100_000)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, b"nested more than" in ended.stderr) == (1, True)


def test_a_document_too_deep_for_its_caller_is_refused() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json("[" * 900 + "]" * 900)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("data", ["", "{", b"\xff", "[1".encode("utf-16"), "[" * 5])
def test_what_is_no_json_is_a_value_error(data: bytes | str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(data)


def test_a_string_that_never_ends_is_looked_at_once() -> None:
    with pytest.raises(ValueError, match="more than 1000 levels"):
        parse_json("[" * 1_001 + '"' + '\\"' * 300_000)


def test_a_duplicate_key_is_refused_on_request() -> None:
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    assert parse_json('[{"a": 1}, {"a": 2}]', unique_keys=True) == [{"a": 1}, {"a": 2}]
    with pytest.raises(ValueError, match="a map has a key twice"):
        parse_json('[{"a": {"b": 1, "b": 1}}]', unique_keys=True)
