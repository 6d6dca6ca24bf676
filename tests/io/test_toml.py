"""TOML from others is read in a time that its size bounds."""

from __future__ import annotations

import time

import pytest

from ledger.io.toml import MAX_DOTS, MAX_TOML_BYTES, parse_toml
from ledger.protocol.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a" + ".a" * (MAX_DOTS + 1) + " = 1", "line 1 has 65 dots, more than 64"),
        ("x = 1\n" + '"a".' * (MAX_DOTS + 1) + "b = 1", "line 2 has 65 dots, more than 64"),
        ("#" * (MAX_TOML_BYTES + 1), "100001 bytes, more than 100000"),
        ("#" + "\u00e5" * (MAX_TOML_BYTES // 2), "100001 bytes, more than 100000"),
        ("a =", "not TOML: Invalid value"),
        ("a = " + "[" * 50_000, "not TOML: "),
        ("a = " + "9" * 5_000, "not TOML: "),
        ("a = '\udcff'\n=", "not TOML: "),
    ],
)
def test_what_is_too_much_or_no_toml_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_toml(text)
    assert sentence in str(refused.value)


def lines_of(line: str) -> str:
    """Return as many numbered copies of a line as one document may hold."""
    numbered = (line.replace("#", str(number)) for number in range(MAX_TOML_BYTES))
    text: list[str] = []
    size = 0
    for one in numbered:
        size += len(one)
        if size > MAX_TOML_BYTES:
            return "".join(text)
        text.append(one)
    raise AssertionError("the lines are too short")


@pytest.mark.parametrize(
    "line",
    [
        "x." * MAX_DOTS + "k# = 1\n",
        "[[" + "x." * MAX_DOTS + "x]]\n",
        "k# = 1\n",
        "k#.x = {y.z = 1}\n",
    ],
)
def test_the_slowest_documents_take_no_second(line: str) -> None:
    begun = time.process_time()
    parse_toml(lines_of(line))
    assert time.process_time() - begun < 5, "a fifth of a second on an idle core"
    with pytest.raises(ConfigurationError, match="has 40000 dots"):
        parse_toml("a." * 40_000 + "a = 1")
    assert time.process_time() - begun < 5
