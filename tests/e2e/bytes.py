"""Record what a user can see of a dozen seeded runs, and compare two trees by it.

A redesign changes no byte that somebody outside depends on: documents, signatures, heads, blobs,
the chain, `--json`, exit codes, REST answers, proofs, bundles and audit reports. The commands are
played through `cmfl.commands.main` alone, so that the same file works in both trees:

    python -m tests.e2e.bytes record BEFORE           # in the tree before: plays and answers
    python -m tests.e2e.bytes record AFTER            # in the tree after
    python -m tests.e2e.bytes reread BEFORE REREAD    # in the tree after: answers on old homes
    python -m tests.e2e.bytes compare BEFORE AFTER
    python -m tests.e2e.bytes compare BEFORE REREAD

Time, the fresh chain id and the names of unfinished files are fixed, so that two records of one
tree are equal. A sentence (a text with two spaces or more) is not compared unless --sentences is
given; codes, keys, structure and figures are.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import httpx

from tests.patience import PATIENCE_SECONDS

_NOW = 1_760_000_000.0
_SMOKE = ("--preset", "smoke")
_START_SECONDS = 120.0

RUNS: dict[str, tuple[str, ...]] = {
    "nearest": (),
    "farthest": ("protocol.strategy=2", "malice.attack=same-value", "malice.malicious_rate=0.25"),
    "robust": (
        *("protocol.strategy=3", "protocol.rounds=8"),
        *("malice.attack=gradient-scaling", "malice.malicious_rate=0.25"),
    ),
    "quorum": ("protocol.quorum=bft", "machine.keep=accepted"),
    "beacon": ("protocol.beacon=block", "training.path=plain"),
    "views": ("malice.members.silent=2", "protocol.rounds=6"),
    "abandoned": ("malice.members.silent=7", "protocol.rounds=4"),
    "banned": ("malice.members.equivocating=3", "protocol.rounds=6"),
    "wrong-proposals": ("malice.members.wrong-proposal=3", "protocol.rounds=6"),
    "whitewashing": (
        *("malice.members.whitewashing=2", "malice.members.false-scores=2"),
        *("malice.trainers.late=1", "protocol.rounds=6"),
    ),
    "trainers": tuple(
        f"malice.trainers.{fault}=1"
        for fault in ("not-finite", "wrong-length", "silent", "late", "stray", "copied", "self-ban")
    ),
    "model": ("model.name=cnn", "protocol.rounds=2", "evaluation.training_loss=true"),
}
"""Settings on top of the preset `smoke`, by the name of the home."""

CUT_AFTER = 2  # rounds after which the home `cut` is killed, to be resumed


def main() -> int:
    """Carry out one of the three commands; return 1 if a comparison finds a difference."""
    parser = argparse.ArgumentParser(prog="tests.e2e.bytes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record")
    record.add_argument("folder", type=Path)
    record.add_argument("--only", nargs="*", default=None)
    reread = commands.add_parser("reread")
    reread.add_argument("old", type=Path)
    reread.add_argument("folder", type=Path)
    reread.add_argument("--only", nargs="*", default=None)
    compare = commands.add_parser("compare")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--sentences", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return _compare(arguments.before, arguments.after, sentences=arguments.sentences)
    _preload()
    homes = arguments.folder / "homes"
    homes.mkdir(parents=True, exist_ok=True)
    names = arguments.only or [*RUNS, "cut", "memory", "tree"]
    for name in names:
        started = time.monotonic()
        answers = arguments.folder / "answers" / name
        shutil.rmtree(answers, ignore_errors=True)
        answers.mkdir(parents=True)
        _record_one(name, homes / name, answers, getattr(arguments, "old", None))
        _say(f"{name}: {time.monotonic() - started:.0f} s")
    return 0


def _record_one(name: str, home: Path, answers: Path, old: Path | None) -> None:
    if name == "tree":
        _write_all(answers, _facts_of_the_tree())
        return
    shutil.rmtree(home, ignore_errors=True)
    if name == "memory":
        settings = ("machine.ledger=memory", "protocol.rounds=6", "malice.members.silent=1")
        _cli(answers, "run", "run", *_at(home), *_SMOKE, *_set(settings), "--json")
        return
    if old is not None:
        source = old / ("cut" if name == "cut" else f"homes/{name}")
        shutil.copytree(source, home)
    elif name == "cut":
        _play_and_cut(home)
        shutil.rmtree(answers.parent.parent / "cut", ignore_errors=True)
        shutil.copytree(home, answers.parent.parent / "cut")
    else:
        _cli(answers, "run", "run", *_at(home), *_SMOKE, *_set(RUNS[name]), "--json")
    if name == "cut":
        _cli(None, "run", "run", *_at(home), "--resume", "--json")
    _answer(home, answers)


def _at(home: Path) -> tuple[str, ...]:
    return ("--home", str(home), "--run", "r")


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _play_and_cut(home: Path) -> None:
    """Kill a run once its metrics have two rows."""
    arguments = ["run", *_at(home), *_SMOKE, "--set", "protocol.rounds=6", "--json"]
    pid = _fork(arguments, None)
    metrics = home / "runs" / "r" / "metrics.jsonl"
    deadline = time.monotonic() + _START_SECONDS
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < CUT_AFTER:
        if time.monotonic() > deadline:
            raise TimeoutError("the run that is to be cut has no rounds")
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


# --- what is asked of a home


def _answer(home: Path, answers: Path) -> None:
    _write_all(answers, _facts_of_files(home))
    at = _at(home)
    rows = _json_of(answers, "rounds", "rounds", "list", *at, "--json", "--limit", "1000")
    numbers = sorted(_number(row) for row in _rows_of(rows))
    clients = _json_of(answers, "clients", "clients", "list", *at, "--json")
    count = len(_rows_of(clients))
    _cli(answers, "runs", "runs", "list", "--home", str(home), "--json")
    _cli(answers, "audit", "audit", *at, "--json")
    decided: list[int] = []
    for number in numbers:
        shown = _json_of(answers, f"round-{number}", "rounds", "show", str(number), *at, "--json")
        if "decided" in json.dumps(shown):
            decided.append(number)
        _cli(answers, f"explain-{number}", "rounds", "explain", str(number), *at, "--json")
    for client in range(0, count, 5):
        _cli(answers, f"client-{client}", "clients", "show", str(client), *at, "--json")
    for number in decided[:2]:
        _proofs(home, answers, number, count)
    _cli(answers, "blobs", "blobs", "list", *at, "--round", str(numbers[0]), "--json")
    rest = _rest(home, numbers, count)
    _write_all(answers, {f"rest/{name}": text for name, text in rest.items()})
    if decided:
        _tampered(home, answers, decided[0])


def _proofs(home: Path, answers: Path, number: int, count: int) -> None:
    at = _at(home)
    for client in range(0, count, 4):
        file = home / f"proof-{number}-{client}.json"
        asked = ("--round", str(number), "--client", str(client))
        _cli(
            answers, f"proof-{number}-{client}", "export", "proof", *asked, *at, "--out", str(file)
        )
        if file.exists():
            (answers / f"proof-{number}-{client}.document").write_bytes(file.read_bytes())
            verify = ("verify", "client", "--proof", str(file), *asked, *at, "--json")
            _cli(answers, f"verify-{number}-{client}", *verify)
    bundle = home / f"bundle-{number}"
    _cli(
        answers,
        f"bundle-{number}",
        "export",
        "bundle",
        "--round",
        str(number),
        *at,
        "--out",
        str(bundle),
    )
    if bundle.exists():
        digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
        (answers / f"bundle-{number}.digest").write_text(digest)
        _cli(answers, f"verify-bundle-{number}", "verify", "bundle", str(bundle), *at, "--json")
    _cli(answers, f"verify-round-{number}", "verify", "round", str(number), *at, "--json")


def _tampered(home: Path, answers: Path, number: int) -> None:
    """Audit the home with each fourth blob gone, and with each fifth changed."""
    copy = home.with_name(f"{home.name}-tampered")
    for what in ("gone", "changed"):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(home, copy)
        blobs = sorted(path for path in (copy / "blobs").rglob("*") if path.is_file())
        for path in blobs[:: 4 if what == "gone" else 5]:
            if what == "gone":
                path.unlink()
            else:
                path.chmod(0o644)
                data = path.read_bytes()
                path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        _cli(answers, f"audit-{what}", "audit", *_at(copy), "--json")
        _cli(answers, f"verify-{what}", "verify", "round", str(number), *_at(copy), "--json")
    shutil.rmtree(copy)


def _facts_of_files(home: Path) -> dict[str, str]:
    blobs = sorted(p.name for p in (home / "blobs").rglob("*") if p.is_file())
    facts = {"files/blobs": "\n".join(blobs)}
    for path in sorted((home / "runs" / "r").rglob("*")):
        if path.is_file() and path.suffix in {".toml", ".json", ".jsonl", ".txt"}:
            facts[f"files/{path.name}"] = path.read_text()
        elif path.is_file() and path.suffix == ".safetensors":
            facts[f"files/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in (home / "chain.sqlite", home / "runs" / "r" / "votes.sqlite"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            facts[f"files/{path.name}"] = "\n".join(database.iterdump())
    return facts


def _facts_of_the_tree() -> dict[str, str]:
    """Return what the tree itself promises: artefact, gas, vectors, OpenAPI, commands."""
    facts: dict[str, str] = {}
    for pattern in (
        "contracts/artifacts/*.json",
        "contracts/gas_snapshot.json",
        "tests/vectors/*.json",
    ):
        for path in sorted(Path().glob(pattern)):
            facts[path.name] = path.read_text()
    facts["openapi.json"] = json.dumps(
        _without_prose(json.loads(Path("docs/openapi.json").read_text()))
    )
    pending: list[tuple[str, ...]] = [()]
    while pending:
        command = pending.pop()
        code, out, _ = _run([*command, "--help"])
        options = re.findall(
            r"^ {2}(?:-\w, )?(--[a-z-]+)(?:, (--[a-z-]+))?( <[^>]+>)?", out, re.MULTILINE
        )
        lines = [f"exit {code}", *("".join(option) for option in options)]
        facts["help " + " ".join(command)] = "\n".join(sorted(lines))
        if "COMMAND [ARGS]" in out:
            # All sections after the options list commands.
            listed = out.partition("\nOptions:\n")[2].partition("\n\n")[2]
            pending += [
                (*command, name)
                for name in re.findall(r"^ {2}([a-z][a-z-]*)", listed, re.MULTILINE)
            ]
    for name, arguments in _WRONG.items():
        code, out, _ = _run(list(arguments))
        facts[f"wrong {name}"] = f"exit {code}\n{out}"
    for kind in ("attacks", "faults", "data", "presets", "rules"):
        code, out, _ = _run(["settings", kind])
        facts[f"settings {kind}"] = f"exit {code}"
    code, out, _ = _run(["settings"])
    facts["settings"] = "\n".join(re.findall(r"^[a-z_.]+(?:  \([^)]*\))?", out, re.MULTILINE))
    return facts


_WRONG: dict[str, tuple[str, ...]] = {
    "no such command": ("nonsense",),
    "no home": ("audit", "--home", "/nonexistent/home"),
    "no such preset": ("run", "--home", "/nonexistent/home", "--preset", "nonsense"),
    "no such setting": (
        "run",
        "--home",
        "/nonexistent/home",
        *_SMOKE,
        "--set",
        "protocol.nonsense=1",
    ),
    "value out of range": (
        "run",
        "--home",
        "/nonexistent/home",
        *_SMOKE,
        "--set",
        "protocol.clients=0",
    ),
    "not a round": ("rounds", "show", "one"),
    "not a proof": ("verify", "client", "--proof", "pyproject.toml", "--head", "0x" + "00" * 32),
    "not a bundle": ("verify", "bundle", "pyproject.toml", "--head", "0x" + "00" * 32),
    "no service": ("rounds", "list", "--api", "http://127.0.0.1:9"),
    "no node": (
        "audit",
        "--rpc-url",
        "http://127.0.0.1:9",
        "--address",
        "0x" + "11" * 20,
        "--blobs",
        ".",
    ),
}
"""Commands that are refused, by what is wrong."""


def _without_prose(value: Any) -> Any:
    """Return an OpenAPI document without its descriptions and summaries."""
    if isinstance(value, dict):
        return {
            key: _without_prose(item)
            for key, item in value.items()
            if key not in {"description", "summary"} or not isinstance(item, str)
        }
    return [_without_prose(item) for item in value] if isinstance(value, list) else value


# --- the service


def _rest(home: Path, numbers: Sequence[int], clients: int) -> dict[str, str]:
    """Return the answers of every route that only reads, by path and query."""
    with _served(home) as url, httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
        paths = list(json.loads(client.get("/openapi.json").text)["paths"])
        deployments = "/v1/chains/{chain}/deployments"
        chain = str(_first(client.get("/v1/chains").json()["chains"], "name"))
        listed = client.get(deployments.format(chain=chain)).json()
        address = str(_first(listed, "address"))
        values = {
            "chain": [chain],
            "address": [address],
            "number": [str(number) for number in numbers[:4]],
            "client": [str(client) for client in range(0, clients, 4)],
            "digest": _digests(client, f"{deployments.format(chain=chain)}/{address}"),
            "prefix": [],
        }
        answers = {}
        for path in paths:
            if path.endswith("/events") or "verifications" in path or "{prefix}" in path:
                continue
            for query in ("", *_QUERIES.get(path.rpartition("}")[2] or path, ())):
                for filled in _filled(path, values):
                    answer = client.get(filled + query)
                    answers[f"GET {filled}{query}"] = _written(answer)
        for wrong in (f"/v1/chains/{chain}/deployments/0x00", "/v1/blobs/zz", "/v1/nonsense"):
            answers[f"GET {wrong}"] = _written(client.get(wrong))
    return answers


_QUERIES = {
    "/rounds": (
        *("?full=true", "?format=csv", "?limit=2", "?order=oldest", "?status=decided", "?client=1"),
        *(
            "?client=1&role=trainer",
            "?view_min=1",
            "?limit=0",
            "?cursor=nonsense",
            "?since_block=20",
        ),
    ),
    "/clients": ("?format=csv", "?limit=3"),
    "/scores": ("?include=all", "?include=vectors"),
    "/evidence": ("?limit=1", "?client=1"),
    "/bundle": ("?whole=true",),
}


def _digests(client: httpx.Client, base: str) -> list[str]:
    """Return every third text of 64 hex digits in the newest round."""
    answer = client.get(f"{base}/rounds?full=true&limit=1").text
    digests = sorted(set(re.findall(r"\b(?:0x)?([0-9a-f]{64})\b", answer)))
    return digests[::3]


def _filled(path: str, values: dict[str, list[str]]) -> Iterator[str]:
    name = re.search(r"\{(\w+)(?::path)?\}", path)
    if name is None:
        yield path
        return
    key = "client" if name.group(1) == "number" and "/clients/" in path else name.group(1)
    for value in values.get(key, []):
        yield from _filled(path.replace(name.group(0), quote(value), 1), values)


def _written(answer: httpx.Response) -> str:
    kind = answer.headers.get("content-type", "")
    if "json" in kind:
        return f"{answer.status_code} {kind}\n{json.dumps(answer.json(), indent=1)}"
    if kind.startswith("text/csv"):
        return f"{answer.status_code} {kind}\n{answer.text}"
    return f"{answer.status_code} {kind}\nsha256 {hashlib.sha256(answer.content).hexdigest()}"


def _first(value: Any, *keys: str) -> Any:
    if isinstance(value, dict):
        for key in keys:
            if key in value:
                return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            if (inner := _first(item, *keys)) is not None:
                return inner
    return None


@contextlib.contextmanager
def _served(home: Path) -> Iterator[str]:
    """Serve a home; the URL of the service, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    arguments = ["serve", "--home", str(home), "--port", str(port), "--no-verifications"]
    pid = _fork(arguments, None)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                    break
            if time.monotonic() > deadline or os.waitpid(pid, os.WNOHANG)[0]:
                raise TimeoutError(f"cmfl serve does not answer at {url}")
            time.sleep(0.05)
        yield url
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


# --- commands, each in a process forked from this one


def _preload() -> None:
    """Import what most commands need, none of it ours."""
    for name in (
        *(
            "torch",
            "torch.nn.functional",
            "web3",
            "eth_account",
            "pydantic",
            "typer",
            "rich.console",
        ),
        *("httpx", "fastapi", "uvicorn", "safetensors.torch"),
    ):
        with contextlib.suppress(ImportError):
            __import__(name)


def _run(arguments: list[str]) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of one command."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"cmfl-bytes-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    _, status = os.waitpid(_fork(arguments, folder), 0)
    return (
        os.waitstatus_to_exitcode(status),
        (folder / "out").read_text(),
        (folder / "err").read_text(),
    )


def _fork(arguments: list[str], folder: Path | None) -> int:
    """Begin a command in a process of its own; return its process id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _become(arguments, folder)
    return pid


def _become(arguments: list[str], folder: Path | None) -> NoReturn:
    code = 70
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for descriptor, name in ((1, "out"), (2, "err")):
            target = "/dev/null" if folder is None else str(folder / name)
            os.dup2(os.open(target, flags, 0o644), descriptor)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.environ |= {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
        if arguments[0] != "serve":
            _fix_time_and_chance()
        sys.argv = ["cmfl", *arguments]
        from cmfl.commands.main import run

        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - the process ends here in any case
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _fix_time_and_chance() -> None:
    chance = random.Random(0)
    fixed: dict[Any, dict[str, Callable[..., Any]]] = {
        time: {"time": lambda: _NOW, "time_ns": lambda: int(_NOW) * 10**9},
        secrets: {
            "randbits": chance.getrandbits,
            "token_hex": lambda size=32: chance.randbytes(size).hex(),
            "token_bytes": lambda size=32: chance.randbytes(size),
        },
    }
    for module, functions in fixed.items():
        for name, function in functions.items():
            setattr(module, name, function)


def _cli(answers: Path | None, name: str, *arguments: str) -> str:
    code, out, err = _run(list(arguments))
    if answers is not None:
        text = f"exit {code}\n{out}"
        if not out:
            text += "\n".join(line for line in err.splitlines()[:1])
        _write_all(answers, {f"cli/{name}": text})
    elif code != 0:
        raise RuntimeError(f"{arguments} ended with {code}: {err[-500:]}")
    return out


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _json_of(answers: Path, name: str, *arguments: str) -> Any:
    out = _cli(answers, name, *arguments)
    return json.loads(out) if out else None


def _rows_of(answer: Any) -> list[Any]:
    if isinstance(answer, list):
        return answer
    return next((item for item in answer.values() if isinstance(item, list)), [])


def _number(row: dict[str, Any]) -> int:
    return int(row.get("round", row.get("number", 0)))


def _write_all(answers: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = answers / _file_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _file_name(name: str) -> str:
    folder, slash, rest = name.partition("/")
    return f"{folder}{slash}{rest.replace('/', '|')}" if slash else name


# --- comparing two records


def _compare(before: Path, after: Path, *, sentences: bool) -> int:
    ours, theirs = _texts(before, sentences), _texts(after, sentences)
    names = sorted(
        ours.keys() & theirs.keys() if _is_part(theirs, ours) else ours.keys() | theirs.keys()
    )
    different = [name for name in names if ours.get(name) != theirs.get(name)]
    for name in different:
        _say(f"DIFFERS {name}: {_difference(ours.get(name), theirs.get(name))}")
    _say(f"{len(names) - len(different)} of {len(names)} answers are equal")
    return 1 if different else 0


def _is_part(theirs: dict[str, str], ours: dict[str, str]) -> bool:
    """Return whether one record has fewer homes than the other, by `--only` or a reread."""
    return {name.partition("/")[0] for name in theirs} != {name.partition("/")[0] for name in ours}


def _texts(folder: Path, sentences: bool) -> dict[str, str]:
    root = folder / "answers"
    return {
        str(path.relative_to(root)): _normal(path.read_text(), folder, sentences)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _normal(text: str, folder: Path, sentences: bool) -> str:
    """Return a text without paths, ports and times of the recording, and without its sentences."""
    text = text.replace(str(folder.resolve()), "FOLDER").replace(str(folder), "FOLDER")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(
        r'"(seconds|uptime_seconds|elapsed_seconds|duration_seconds)": [\d.e-]+', r'"\1": 0', text
    )
    if not sentences:
        text = re.sub(
            r'"(?:[^"\\\n]|\\.)* (?:[^"\\\n]|\\.)* (?:[^"\\\n]|\\.)*"(?!:)', '"SENTENCE"', text
        )
        text = re.sub(r"^cmfl: .*$", "cmfl: SENTENCE", text, flags=re.MULTILINE)
    return text


def _difference(before: str | None, after: str | None) -> str:
    if before is None or after is None:
        return "only " + ("after" if before is None else "before")
    ours, theirs = before.splitlines(), after.splitlines()
    for number, (old, new) in enumerate(zip(ours, theirs, strict=False)):
        if old != new:
            at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
            start = max(0, at - 60)
            return f"line {number + 1}: {old[start : at + 100]!r} -> {new[start : at + 100]!r}"
    return f"{len(ours)} lines -> {len(theirs)} lines"


if __name__ == "__main__":
    sys.exit(main())
