"""Contract and specification side by side for a million steps: `python -m tests.contracts.deep`.

Every hundredth chunk runs on py-evm; ended at any time, the next run goes on.
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
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import cast

from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from ledger.chain.ports import ChainWriter
from ledger.protocol.errors import RefusalCode
from tests.contracts import faults, support, test_refusals
from tests.contracts.revm_chain import RevmChain
from tests.contracts.test_twins import TwinsMachine, settings_of
from tests.contracts.twins import MOST_COMPARED, Twins

STATE = Path("build") / "deep" / "twins.jsonl"
MILLION = 1_000_000
PY_EVM_ONCE_IN = 100
SETTINGS = settings(settings_of(20), derandomize=False, phases=(Phase.generate, Phase.shrink))


class DeepMachine(TwinsMachine):
    """The machine that also does what the stage of a ledger, or a ban, forbids."""

    is_on_revm: bool

    def new_chain(self) -> ChainWriter:
        if self.is_on_revm:
            self.most_compared = MOST_COMPARED
        return cast("ChainWriter", RevmChain()) if self.is_on_revm else super().new_chain()

    @rule(fault=st.sampled_from(test_refusals.STAGE_FAULTS))
    def come_at_the_wrong_stage(
        self, fault: tuple[str, RefusalCode, test_refusals.StageFault]
    ) -> None:
        _, refusal, act = fault
        assert act(self.chain) is refusal

    @rule(fault=st.sampled_from(test_refusals.FAULTS + faults.BAN_FAULTS + faults.DELEGATED_FAULTS))
    def go_wrong_elsewhere(self, fault: faults.Fault) -> None:
        # In a ledger of its own, so that nothing else is wrong and the reason is known.
        if fault in faults.DELEGATED_FAULTS and self.is_on_revm:
            return  # pyrevm takes no transaction from an account with code
        twins = Twins.opened(self.chain, replace(test_refusals.SHAPE, form=fault.form))
        support.commit_all(twins, support.active_of(twins.state))
        assert fault.act(twins) is fault.refusal


def main() -> int:
    """Take the steps that are missing, and print what they came to."""
    arguments = _arguments()
    chunks = _read(arguments.state)
    arguments.state.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        number, running = max(chunks, default=0), dict[Future[Counter[str]], tuple[int, float]]()
        while sum(_steps(chunk) for chunk in chunks.values()) < arguments.steps:
            while len(running) < arguments.jobs:
                number += 1
                running[pool.submit(_chunk, number)] = number, time.monotonic()
            ended = next(as_completed(running))
            seed_of_it, started = running.pop(ended)
            chunks[seed_of_it] = ended.result()
            line = {"seed": seed_of_it, "outcomes": chunks[seed_of_it]}
            with arguments.state.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            seconds = time.monotonic() - started
            steps = _steps(chunks[seed_of_it])
            print(f"seed {seed_of_it}: {steps} steps, {seconds:.0f} s", flush=True)
        pool.shutdown(cancel_futures=True)
    return _show(chunks)


def _chunk(number: int) -> Counter[str]:
    """Return how often each outcome came, of the runs that a seed gives."""
    Twins.outcomes.clear()
    is_on_revm = bool(number % PY_EVM_ONCE_IN)
    with tempfile.TemporaryDirectory() as folder:
        machine = type(
            "Machine", (DeepMachine,), {"folder": Path(folder), "is_on_revm": is_on_revm}
        )
        try:
            run_state_machine_as_test(seed(number)(machine), settings=SETTINGS)
        except Exception as error:
            error.add_note(f"seed {number}, on {'revm' if is_on_revm else 'the embedded chain'}")
            raise
    return Counter(Twins.outcomes)


def _show(chunks: dict[int, Counter[str]]) -> int:
    """Print how often each outcome came; return 1 if a refusal never did, else 0."""
    total = sum(chunks.values(), Counter[str]())
    refusals = {refusal.name for refusal in RefusalCode}
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
    parser.add_argument("--jobs", type=int, default=1, help="chunks at a time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
