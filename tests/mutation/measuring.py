"""What tests do without a mutant, kept, and measured anew where the tree is another one.

Where a source that is mutated has changed, everything is measured again; where a file of tests has,
that file alone.
"""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.mutation.nearest import Measured
from tests.mutation.processes import done_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import ModuleType


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured, and of which tree.

    Attributes:
        sources: digest of the files that are mutated.
        files: digest of each file of tests, by its path.
        seconds: of CPU, of each test.
        refusals: tests that meet each refusal of the contract, by its reason.
        lines: tests that run each line, by "path:line".
    """

    sources: str
    files: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write it down; a test that runs many lines is named once."""
        places = {test: place for place, test in enumerate(self.seconds)}
        lines = {line: [places[test] for test in tests] for line, tests in self.lines.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(replace(self, lines={})) | {"lines": lines}), "utf-8")

    @classmethod
    def read(cls, path: Path) -> Measurement:
        """Return what was written down."""
        found = cls(**json.loads(path.read_text("utf-8")))
        names = list(found.seconds)
        lines: dict[str, list[int]] = found.lines  # type: ignore[assignment]
        named = {line: [names[place] for place in places] for line, places in lines.items()}
        return replace(found, lines=named)

    def of_these(self, files: Mapping[str, str]) -> Measurement:
        """Return what is known of the files of tests that are still the same."""
        same = {path for path, digest in files.items() if self.files.get(path) == digest}

        def known(tests: Iterable[str]) -> list[str]:
            return [test for test in tests if test.partition("::")[0] in same]

        return Measurement(
            self.sources,
            {path: files[path] for path in same},
            {test: self.seconds[test] for test in known(self.seconds)},
            {reason: known(tests) for reason, tests in self.refusals.items()},
            {line: known(tests) for line, tests in self.lines.items()},
        )

    def joined(self, files: Mapping[str, str], found: Mapping[str, Any]) -> Measurement:
        """Return this with what was measured of further files."""
        return Measurement(
            self.sources,
            self.files | dict(files),
            self.seconds | found["seconds"],
            _united(self.refusals, found["refusals"]),
            _united(self.lines, found["lines"]),
        )


def measured(name: str, trial: ModuleType, root: Path, path: Path) -> Measured | None:
    """Return what the tests do without a mutant; None if they do not pass.

    Args:
        name: of what is mutated.
        trial: the module that tries its mutants.
        root: of the tree.
        path: where it is kept.
    """
    sources = _digest(b"".join(source.read_bytes() for source in trial.sources()))
    files = {
        file.relative_to(root).as_posix(): _digest(file.read_bytes())
        for folder in trial.TESTS
        for file in sorted((root / folder).rglob("test_*.py"))
    }
    files = {file: digest for file, digest in files.items() if file not in trial.LEFT_OUT}
    before = Measurement.read(path) if path.exists() else None
    if before is None or before.sources != sources:
        before = Measurement(sources)
    known = before.of_these(files)
    missing = {file: digest for file, digest in files.items() if file not in known.files}
    if missing:
        print(f"{name}: {len(missing)} files of tests without a mutant", flush=True)
        ended = done_apart(partial(trial.measure, list(missing)))
        if ended.answer is None or ended.answer["code"] != 0:
            failed = "" if ended.answer is None else ended.answer["failed"]
            print(f"the tests do not pass without a mutant: {failed}\n{ended.log_tail}")
            return None
        known = known.joined(missing, ended.answer)
        known.write(path)
    return Measured(known.seconds, known.refusals, known.lines)


def _united(some: Mapping[str, list[str]], others: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {key: sorted({*some.get(key, ()), *others.get(key, ())}) for key in {**some, **others}}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
