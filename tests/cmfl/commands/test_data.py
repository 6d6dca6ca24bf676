"""`cmfl data`: describing, checking and fetching the files of data sets."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cmfl.commands.conftest import refusal, succeeds

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hugging_face"
COMMIT = "a" * 40


def test_check_names_what_is_sound_and_the_first_fault(tmp_path: Path) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("lovely 1 2\nrain 3 4\n")
    folder = FIXTURES / "sent140"
    found = succeeds("data", "check", folder, "--glove", glove, "--json").json
    assert found == {
        "dataset": "sent140",
        "sound": True,
        "samples": 5,
        "train": None,
        "test": None,
        "clients": 2,
        "shape": [],
        "per_class": {"0": 2, "1": 3},
    }
    assert "sent140, all files are valid" in succeeds("data", "check", folder).out
    glove.write_text("lovely 1 2\nrain 3\n")
    assert "line 2 has 1 numbers" in refusal("data", "check", folder, "--glove", glove)
    whole = (folder / "train-00000-of-00001.parquet").read_bytes()
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole[:-100])
    assert "cut.parquet: not a readable .parquet file" in refusal("data", "check", cut)


def test_a_wrong_path_or_name_is_refused_with_the_choices(tmp_path: Path) -> None:
    assert refusal("data", "check", tmp_path / "none").endswith("none: no such file")
    assert "zero is not a file, but a" in refusal("data", "check", "/dev/zero")
    said = refusal("data", "check", FIXTURES / "femnist", "--dataset", "sent140")
    assert "is not a layout of 'sent140'; it may be a .parquet file" in said
    said = refusal("data", "check", FIXTURES / "femnist", "--dataset", "mnist")
    assert said.startswith("unknown data set 'mnist'; known are digits, ")
    said = refusal("data", "check", FIXTURES / "femnist", "--glove", "g.txt")
    assert said.startswith("data.options.glove: there is no such setting")


class Hub(BaseHTTPRequestHandler):
    """The two paths of the hub that a download needs: what a revision holds, and a file."""

    files: dict[str, dict[str, bytes]]
    """Content by revision and name."""

    stated: dict[str, Any]
    """What the hub says of every file beside its name and size."""

    def do_HEAD(self) -> None:
        self._answer(send_body=False)

    def do_GET(self) -> None:
        self._answer(send_body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, send_body: bool) -> None:
        path = self.path.partition("?")[0].replace("%2F", "/")
        headers = {"X-Repo-Commit": COMMIT}
        if path.startswith("/api/datasets/") and "/revision/" in path:
            held = self.files.get(path.partition("/revision/")[2])
            siblings = [
                {"rfilename": name, "size": len(content)} | self.stated
                for name, content in (held or {}).items()
            ]
            body = json.dumps({"id": "x", "sha": COMMIT, "siblings": siblings}).encode()
            status = 404 if held is None else 200
        else:
            name = path.partition(f"/resolve/{COMMIT}/")[2]
            found = [held[name] for held in self.files.values() if name in held]
            status, body = (200, found[0]) if found else (404, b"")
            headers["ETag"] = f'"{hashlib.sha1(body).hexdigest()}"'
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if send_body:
            self.wfile.write(body)


@contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, dict[str, bytes]],
    stated: dict[str, Any] | None = None,
) -> Iterator[None]:
    handler = type("ThisHub", (Hub,), {"files": files, "stated": stated or {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def content(name: str) -> bytes:
    (file,) = (path for path in (FIXTURES / name).rglob("*") if path.is_file())
    return file.read_bytes()


def test_fetch_creates_a_folder_that_check_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = content("femnist")
    files = {
        "data/train-00000-of-00002.parquet": published,
        "data/train-00001-of-00002.parquet": published,
        "README.md": b"not asked for",
    }
    destination = tmp_path / "new" / "femnist"
    digest = {"lfs": {"size": 0, "sha256": hashlib.sha256(published).hexdigest(), "pointerSize": 0}}
    with served(monkeypatch, {"main": files}, digest):
        found = succeeds("data", "fetch", "femnist", destination, "--json").json
    names = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    assert found == {"dataset": "femnist", "files": [str(destination / name) for name in names]}
    assert [path.name for path in sorted(destination.iterdir())] == names
    assert [path.name for path in destination.parent.iterdir()] == ["femnist"]
    assert (destination / names[0]).read_bytes() == published
    assert succeeds("data", "check", destination, "--json").json["samples"] == 14


def test_fetch_uses_converted_files_where_the_main_revision_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "main": {"sentiment140.py": b"a script that nobody runs"},
        "refs/convert/parquet": {
            "sentiment140/train/0000.parquet": content("sent140"),
            "sentiment140/test/0000.parquet": b"",
        },
    }
    with served(monkeypatch, files):
        printed = succeeds("data", "fetch", "sent140", tmp_path / "s").out
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["0000.parquet"]
    assert "data check" in printed
    succeeds("data", "check", tmp_path / "s")


def test_a_download_that_fails_names_the_reason_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shakespeare = {"shakespeare.csv": content("shakespeare")}
    wrong = {"lfs": {"size": 0, "sha256": "0" * 64, "pointerSize": 0}}
    with served(monkeypatch, {"main": shakespeare}, wrong):
        said = refusal("data", "fetch", "shakespeare", tmp_path / "s")
        assert said.endswith(f"came, {'0' * 64} is stated")
    with served(monkeypatch, {"main": {"README.md": b""}}):
        said = refusal("data", "fetch", "shakespeare", tmp_path / "s")
        assert said == r"flwrlabs/shakespeare: the hub has no file shakespeare\.csv"
    with served(monkeypatch, {}):
        said = refusal("data", "fetch", "shakespeare", tmp_path / "s")
        assert said.startswith("flwrlabs/shakespeare cannot be fetched: ")
    # The server of the last address is gone.
    said = refusal("data", "fetch", "shakespeare", tmp_path / "s")
    assert said.startswith("flwrlabs/shakespeare cannot be fetched: ")
    assert list(tmp_path.iterdir()) == []


def test_fetch_refuses_what_it_cannot_fetch_before_it_asks_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        refusal("data", "fetch", "digits", tmp_path / "d") == "data set 'digits' is not on the hub"
    )
    assert refusal("data", "fetch", "mnist", tmp_path / "d").startswith("unknown data set 'mnist'")
    assert refusal("data", "fetch", "femnist", tmp_path).endswith("is there already")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    said = refusal("data", "fetch", "femnist", tmp_path / "f")
    assert said.startswith("downloads need the extra [fetch]: pip install")
    assert list(tmp_path.iterdir()) == []


ROWS = 48
RUN = ("--preset", "smoke", "--rounds", 1)


def archive(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(ROWS, 4)), np.arange(ROWS) % 3
    np.savez(path, x=x, y=y, client=np.arange(ROWS) % 12, is_test=np.arange(ROWS) >= 36)
    return path


def test_own_data_are_simulated_audited_and_bound(tmp_path: Path) -> None:
    path = archive(tmp_path / "mine.npz")
    home = tmp_path / "h"
    run = ("run", "--home", home, "--preset", "smoke", "--set", "protocol.rounds=2")
    succeeds(*run, "--set", f"data.path={path}", "--json")
    assert succeeds("audit", "--home", home, "--json").json["outcome"] == "passed"
    archive(path, seed=1)
    refused = refusal("run", "--home", home, "--resume")
    assert "the sha256 of its files was" in refused
    assert ", and is " in refused


TABLE = "a, b, kind, client\n" + "".join(
    f"{row / 7:.3f},{row % 5},{('high', 'low', 'mid')[row % 3]},s{row % 8}\n" for row in range(80)
)
NAMES = '["low", "mid", "high"]'
EIGHT = ("--set", "protocol.clients=8", "--set", "protocol.active_rate=1")


def test_a_run_first_names_features_labels_and_clients(tmp_path: Path) -> None:
    path, home = tmp_path / "mine.csv", tmp_path / "h"
    path.write_text(TABLE, "utf-8")
    kind = ("--set", f"data.path={path}", "--set", "data.options.label=kind", *EIGHT)
    said = refusal("run", "--home", home, *RUN, *kind)
    assert 'data.options.classes=["high", "low", "mid"]' in said
    classes = ("--set", f"data.options.classes={NAMES}")
    ran = succeeds("run", "--home", home, *RUN, *kind, *classes)
    assert ran.out.splitlines()[:3] == [
        "2 features: 'a', 'b' (float32), taken for numbers",
        "label: 'kind', 3 classes seen, 3 model outputs: 'low', 'mid', 'high'",
        "clients: 'client', 8 of them",
    ]
    checked = ("verify", "training", "--home", home, "--client", 0, "--data", path, "--json")
    assert succeeds(*checked).json["verdict"] in {"same", None}
    model = tmp_path / "m.safetensors"
    succeeds("model", "export", "--home", home, "--out", model)
    assert succeeds("model", "evaluate", model, "--home", home, "--json").json["samples"] == 16
    quiet = succeeds("run", "--home", tmp_path / "q", *RUN, *kind, *classes, "-q")
    assert "features" not in quiet.out


def test_settings_of_a_table_reach_its_check(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a,kind\n1,0\n2,1\n", "utf-8")
    assert refusal("data", "check", path)
    succeeds("data", "check", path, "--set", "data.options.label=kind")
    assert "only data.options" in refusal("data", "check", path, "--set", "seed=1")
