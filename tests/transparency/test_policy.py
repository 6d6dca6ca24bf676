"""Policies: the specification's groups, each rule's refusal, and quorums that count."""

from __future__ import annotations

from itertools import combinations

import pytest

from ledger.protocol.errors import ConfigurationError
from ledger.transparency.keys import KeyUse, SigningKey
from ledger.transparency.policy import MAX_POLICY_BYTES, WitnessPolicy, parse_policy
from tests.transparency.support import LOG, OTHER_LOG, WITNESSES, policy_text

KEYS = [str(key.verifier) for key in WITNESSES]
MORE = [
    str(SigningKey(f"y{number}", KeyUse.COSIGNATURE, bytes([40 + number] * 32)).verifier)
    for number in range(3)
]
W = "\n".join(f"witness W{number} {key}" for number, key in enumerate(KEYS))


def parsed(text: str) -> WitnessPolicy:
    return parse_policy(text.encode("utf-8", "surrogateescape"))


def test_the_specifications_two_groups_need_two_and_one() -> None:
    """The example of c2sp.org/tlog-policy, with keys."""
    lines = [f"log {LOG.verifier}", ""]
    lines += [f"witness X{number} {key}" for number, key in enumerate(KEYS, 1)]
    lines += ["group X-witnesses 2 X1 X2 X3", "  # a comment"]
    lines += [f"witness Y{number} {key}" for number, key in enumerate(MORE, 1)]
    lines += ["group\tY-witnesses any Y1  Y2 Y3", "group X-and-Y all X-witnesses Y-witnesses"]
    policy = parsed("\n".join([*lines, "quorum X-and-Y"]))
    for count in range(7):
        for names in combinations(policy.witnesses, count):
            xs = sum(name[0] == "X" for name in names)
            assert policy.is_met(names) == (xs >= 2 and count - xs >= 1), names


def test_a_quorum_may_be_one_witness_or_none() -> None:
    one = parsed(f"{W}\nquorum W1\n")
    assert one.is_met(["W1"])
    assert not one.is_met(["W0", "W2"])
    assert parsed("quorum none\n").is_met([])


def test_names_are_opaque_bytes() -> None:
    text = W.encode().replace(b"W0", b"\xff\xfe") + b"\ngroup g any \xff\xfe\nquorum g\n"
    assert parse_policy(text).is_met(["\udcff\udcfe"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        W,
        f"{W}\nquorum W3",
        f"{W}\nquorum W0\nquorum W0",
        f"{W}\nquorum",
        f"{W}\ngroup g 0 W0\nquorum g",
        f"{W}\ngroup g 3 W0 W1\nquorum g",
        f"{W}\ngroup g any\nquorum g",
        f"{W}\ngroup g any none\nquorum g",
        f"{W}\ngroup g any g\nquorum g",
        f"{W}\ngroup g any W0 W0\nquorum g",
        f"{W}\ngroup g any W0\ngroup h any W0\nquorum h",
        f"{W}\ngroup none any W1\nquorum none",
        f"witness none {KEYS[0]}\nquorum none",
        f"{W}\nwitness W0 {MORE[0]}\nquorum W0",
        f"witness W0 {LOG.verifier}\nquorum W0",
        f"log {KEYS[0]}\nquorum none",
        f"log {LOG.verifier}\nlog {LOG.verifier}\nquorum none",
        f"{W}\nquorum W0\nbecause x",
        f"{W}\nquorum W0\x7f",
        f"#{'x' * MAX_POLICY_BYTES}\n{W}\nquorum W0",
        "\n".join(f"group g{n} any W0" for n in range(3)),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parsed(text)
    assert "\n" not in str(error.value)


def test_hundreds_of_logs_are_refused() -> None:
    lines = [
        f"log {SigningKey(f'log{number}', KeyUse.NOTE, number.to_bytes(32)).verifier}"
        for number in range(257)
    ]
    with pytest.raises(ConfigurationError, match="256"):
        parsed("\n".join([*lines, "quorum none"]))
    assert (
        len(parsed("\n".join([*lines[:32], f"log {OTHER_LOG.verifier}", "quorum none"])).logs) == 33
    )


def test_names_of_strangers_and_repeats_do_not_count() -> None:
    policy = parsed(policy_text("2"))
    assert not policy.is_met(["W0", "W0", "stranger"])
    assert policy.is_met(["W0", "W2"])
