"""`make gpu`: tests, whole runs and measurements on this machine's GPU, written as one document.

`python -m benchmarks.gpu` needs a CUDA build of torch and a card, and nothing from the network. It
names the card, runs the CUDA tests, plays, audits and repeats a run of digits, one on images in
the form of FEMNIST and one of a transformer with adapters, and measures training and a round at the
size of paper-femnist. A step for which too little of ten minutes is left does not
begin, and is named. The figures go to docs/measured/gpu.json. Exit code 1: a step failed or was
left out. 2: there is no such device.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import steps
from benchmarks.gpu.plans import FULL, TINY, GpuPlan
from benchmarks.workloads import machine
from clients.devices import device_named
from ledger.io.home import write_named
from ledger.protocol.errors import ConfigurationError

RESULT = Path(__file__).parents[2] / "docs" / "measured" / "gpu.json"
BUDGET_SECONDS = 570.0

STEPS: dict[str, tuple[Callable[[GpuPlan, str, float], Any], float]] = {
    "card": (steps.card, 5),
    "tests": (steps.run_tests, 30),
    "digits": (steps.digits_run, 20),
    "femnist": (steps.femnist_run, 30),
    "adapters": (steps.adapters_run, 40),
    "training": (steps.training, 60),
    "round": (steps.large_round, 90),
}
"""Each step, and the seconds that have to be left for it to begin."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all steps, write the document and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        device_named(options.device)
    except ConfigurationError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 2
    plan = TINY if options.tiny else FULL
    began = time.perf_counter()
    document: dict[str, Any] = {"machine": machine(), "device": options.device, "failed": {}}
    for name, (step, needs) in STEPS.items():
        left = BUDGET_SECONDS - (time.perf_counter() - began)
        if left < needs:
            sentence = f"left out: {left:.0f} s were left, and it takes {needs:.0f}"
            document["failed"][name] = sentence
        else:
            print(f"{name} ...", flush=True)
            _do(document, name, partial(step, plan, options.device, left))
    document["seconds"] = time.perf_counter() - began
    write_named(options.out, f"{json.dumps(document, indent=1)}\n".encode())
    failed = ", ".join(document["failed"]) or "nothing"
    print(f"{options.out}: {document['seconds']:.0f} s, failed: {failed}")
    return 1 if document["failed"] else 0


def _do(document: dict[str, Any], name: str, step: Callable[[], Any]) -> None:
    """Do a step; write its rows, or why there are none, into the document."""
    began = time.perf_counter()
    try:
        document[name] = step()
    except steps.StepFailedError as error:
        document["failed"][name] = error.row
    except Exception as error:  # noqa: BLE001 - the first run on a card may fail in any way
        traceback.print_exc()
        document["failed"][name] = f"{type(error).__name__}: {error}"[:2000]
    found = document.get(name, document["failed"].get(name))
    print(f"{name}: {time.perf_counter() - began:.1f} s: {json.dumps(found)}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu", description=(__doc__ or "").partition("\n")[0].partition(": ")[2]
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the command")
    parser.add_argument("--tiny", action="store_true", help="small sizes: does it all work?")
    parser.add_argument("--out", type=Path, default=RESULT, help="the document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
