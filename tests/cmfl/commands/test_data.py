"""`cmfl data`: describing, checking and fetching the files of data sets."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from clients.datasets import published
from clients.datasets.texts import read_glove
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
    assert "line 2: 1 numbers" in refusal("data", "check", folder, "--glove", glove)
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
    with listening(type("ThisHub", (Hub,), {"files": files, "stated": stated or {}})) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
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
        assert f"expected sha256 {'0' * 64}, got" in said
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
    said = refusal("data", "fetch", "digits", tmp_path / "d")
    assert said.startswith("data set 'digits' is not on the hub; experiments read digits_by_writer")
    assert refusal("data", "fetch", "mnist", tmp_path / "d").startswith("unknown data set 'mnist'")
    assert refusal("data", "fetch", "femnist", tmp_path).endswith("exists; name a new folder")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    said = refusal("data", "fetch", "femnist", tmp_path / "f")
    assert said.startswith("downloads need the extra [fetch]: pip install")
    assert list(tmp_path.iterdir()) == []


def leaf_archive(test: dict[str, Any], train: dict[str, Any]) -> bytes:
    """Return a ZIP file with LEAF's two folders."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for split, users in (("test", test), ("train", train)):
            sizes = [len(user["y"]) for user in users.values()]
            document = {"users": [*users], "num_samples": sizes, "user_data": users}
            files.writestr(f"{split}/all.json", json.dumps(document))
    return packed.getvalue()


def windows(text: str, order: list[int]) -> dict[str, list[str]]:
    return {"x": [text[at : at + 80] for at in order], "y": [text[at + 80] for at in order]}


TEXTS = ["".join(chr(97 + (at * at + 7 * role) % 26) for at in range(86)) for role in range(2)]
TWEET = ["1", "now", "NO_QUERY", "them", "so  nice @me http://x.y/z", "training"]


@cache
def small_sources() -> dict[str, bytes]:
    """Return small files in the form of the published ones, by the end of their path."""
    words, flags = 11_925, b"\0\4\0\t"
    names = b"".join(flags + b"\0\0\0\5" + f"{at:05}".encode() for at in range(words))
    numbers = np.arange(words * 25, dtype=">f8").tobytes()
    matrix = bytes(60) + numbers + b"\0\0\0\x10" + words.to_bytes(4, "big") + names
    labels = np.arange(20, dtype=np.uint8) % 10
    written = np.zeros((20, 8), dtype=">i4")
    written[:, 2] = [7] * 8 + [3] * 12
    roles = {"B": windows(TEXTS[0], [0, 1, 3, 4]), "A": windows(TEXTS[1], [3, 0, 4, 1])}
    tests = {"B": windows(TEXTS[0], [2, 5]), "A": windows(TEXTS[1], [5, 2])}
    tweets = {"them": {"x": [TWEET] * 2, "y": ["4", "0"]}}
    image = {"x": [[1.0] * 784] * 3, "y": [10, 61, 0]}
    return {
        "images-idx3-ubyte.gz": gzip.compress(bytes(16 + 20 * 784)),
        "labels-idx1-ubyte.gz": gzip.compress(bytes(8) + labels.tobytes()),
        "labels-idx2-int.gz": gzip.compress(bytes(12) + written.tobytes()),
        "test.json": json.dumps({"user_data": {"f1": image, "f0": image}}).encode(),
        "25d.rda": lzma.compress(matrix),
        "sent140.zip": leaf_archive(tweets, tweets),
        "shakespeare.zip": leaf_archive(tests, roles),
    }


class Sources(BaseHTTPRequestHandler):
    """A mirror of the small sources; each path is below `/mirror`."""

    def do_GET(self) -> None:
        ends = (body for end, body in small_sources().items() if self.path.endswith(end))
        body = next(ends, None) if self.path.startswith("/mirror/") else None
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        pass


def test_files_of_experiments_are_made_from_sources_with_known_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = tomllib.loads(Path(published.__file__).with_name("published.toml").read_text("utf-8"))
    assert tuple(pins) == published.FILES
    fetch = ("data", "fetch", "all", tmp_path / "data")
    with listening(Sources) as address:
        # The sources are others than the published ones.
        mirror = ("--source", f"{address}/mirror")
        said = refusal(*fetch, *mirror)
        assert said.startswith("digits_by_writer.npz cannot be fetched: nature24/Minist/")
        assert "status 200 and sha256 " in said
        assert "must be 200 and b3d1ecee" in said
        assert "status 404" in refusal(*fetch, "--source", address)
        for file in pins.values():
            for path in file["sources"]:
                body = next(b for end, b in small_sources().items() if path.endswith(end))
                file["sources"][path] = hashlib.sha256(body).hexdigest()
        monkeypatch.setattr(published, "parse_toml", lambda _: pins)
        succeeds("data", "fetch", "digits-by-writer", tmp_path / "data", *mirror)
        said = succeeds(*fetch, *mirror).out
    assert "digits_by_writer.npz: is there already and stays\n" in said
    assert said.count("other bytes than the file of the published rows; ") == 4
    assert len(succeeds(*fetch, "--json").json["files"]) == 5
    assert "be an http" in refusal("data", "fetch", "shakespeare.npz", tmp_path, "--source", "x")
    checked = {name: published_file(tmp_path / "data" / name) for name in published.FILES[:2]}
    assert checked["digits_by_writer.npz"] == (20, 2, 4)
    assert checked["femnist_mini.npz"] == (30, 10, 10)
    tweets = tmp_path / "data" / "sent140.parquet"
    assert published_file(tweets) == (4, 1, 2)
    assert pq.read_table(tweets)["text"].to_pylist() == ["so nice"] * 4
    glove = read_glove(tmp_path / "data" / "glove_twitter_25d_12k.npz", {"00002"})
    assert glove["00002"].tolist() == [2 + 11_925 * column for column in range(25)]
    with np.load(tmp_path / "data" / "shakespeare.npz") as roles:
        told = "".join(roles["alphabet"][roles["chars"]])
        assert (told, roles["role"].tolist()) == (TEXTS[1] + TEXTS[0], ["A", "B"])
        assert roles["is_test"].tolist() == [0, 0, 1, 0, 0, 1] * 2


def published_file(path: Path) -> tuple[int, int, int]:
    """Return the samples, clients and test samples that the check finds."""
    found = succeeds("data", "check", path, "--json").json
    return found["samples"], found["clients"], found["test"]


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
    assert "expected the sha256 of its files" in refused
    assert ", got " in refused


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
    assert "must be data.options" in refusal("data", "check", path, "--set", "seed=1")
