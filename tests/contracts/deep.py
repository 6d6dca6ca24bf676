"""Contract and specification side by side for a million steps: `python -m tests.contracts.deep`.

A step is a transaction that both have taken, or both have refused for one reason, and after which
both are in one state. The machine is that of `test_twins.py`; here it also registers wrongly, comes
before the first round and after the last, and makes every mistake in a ledger of its own, so that
every refusal is among its steps. It runs in chunks, each with a seed of its own and one line in a
file: ended at any time, the next run goes on. What a chunk finds is found again by its seed.
"""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from ledger.protocol import errors
from tests.contracts import faults, support, test_refusals
from tests.contracts.test_twins import TwinsMachine
from tests.contracts.twins import Twins

STATE = Path("build") / "deep" / "twins.jsonl"
MILLION = 1_000_000
EXAMPLES = 20


class DeepMachine(TwinsMachine):
    """The machine that also does what the stage of a ledger, or a ban, forbids."""

    @rule(fault=st.sampled_from(test_refusals.STAGE_FAULTS))
    def come_at_the_wrong_stage(
        self, fault: tuple[str, type[errors.Refusal], test_refusals.StageFault]
    ) -> None:
        _, refusal, act = fault
        assert act(self.chain) is refusal

    @rule(fault=st.sampled_from(test_refusals.FAULTS + faults.BAN_FAULTS))
    def go_wrong_elsewhere(self, fault: faults.Fault) -> None:
        # In a ledger of its own, so that nothing else is wrong and the reason is known.
        twins = Twins.opened(self.chain, replace(test_refusals.SHAPE, form=fault.form))
        support.commit_all(twins, support.active_of(twins.state))
        assert fault.act(twins) is fault.refusal


def main() -> int:
    """Take the steps that are missing, and print what they came to."""
    arguments = _arguments()
    chunks = _read(arguments.state)
    arguments.state.parent.mkdir(parents=True, exist_ok=True)
    while sum(_steps(chunk) for chunk in chunks.values()) < arguments.steps:
        number = 1 + max(chunks, default=0)
        started = time.monotonic()
        chunks[number] = _chunk(number)
        line = {"seed": number, "outcomes": chunks[number]}
        with arguments.state.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        seconds = time.monotonic() - started
        print(f"seed {number}: {_steps(chunks[number])} steps, {seconds:.0f} s", flush=True)
    return _show(chunks)


def _chunk(number: int) -> Counter[str]:
    """Return how often each outcome came, of the runs that a seed gives."""
    Twins.outcomes.clear()
    with tempfile.TemporaryDirectory() as folder:
        machine = type("Machine", (DeepMachine,), {"folder": Path(folder)})
        run_state_machine_as_test(
            seed(number)(machine),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=40,
                phases=(Phase.generate, Phase.shrink),
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    return Counter(Twins.outcomes)


def _show(chunks: dict[int, Counter[str]]) -> int:
    """Print how often each outcome came; return 1 if a refusal never did, else 0."""
    total = sum(chunks.values(), Counter[str]())
    refusals = {refusal.__name__ for refusal in errors.REFUSALS.values()}
    for outcome, count in total.most_common():
        print(f"{count:9,} {outcome}")
    missing = sorted(refusals - set(total))
    print(
        f"{_steps(total):9,} steps in {len(chunks)} chunks; never refused as: {missing or 'none'}"
    )
    return 1 if missing else 0


def _steps(outcomes: Counter[str]) -> int:
    return sum(outcomes.values())


def _read(path: Path) -> dict[int, Counter[str]]:
    if not path.exists():
        return {}
    found = {}
    for text in path.read_text("utf-8").splitlines():
        # A line that a killed run has torn is a chunk that is played again.
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            found[line["seed"]] = Counter(line["outcomes"])
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=MILLION, help="steps, earlier ones included")
    parser.add_argument("--state", type=Path, default=STATE, help="what was taken before")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
