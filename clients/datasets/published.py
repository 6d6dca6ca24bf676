"""The files that experiments name, made from files that others published.

`published.toml` pins each source by commit and sha256, so that a mirror cannot change it. A made
file has the bytes that the published rows were played with, except where a library packs them
differently, and except for tweets: see `_tweets`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import re
import tempfile
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.data_set import DataSet
from clients.datasets.federated_data import Labels
from clients.datasets.files.tables import imported
from clients.datasets.texts import ALPHABET, SENT140, SHAKESPEARE
from ledger.io.home import DISK
from ledger.io.parsing import parse_toml
from ledger.protocol.errors import ConfigurationError

SOURCE = "https://raw.githubusercontent.com"
MAX_SOURCE_BYTES = 8 * 2**20
TIMEOUT_SECONDS, SILENCE_SECONDS = 600, 60
_TRACES = re.compile(r"https?://\S+|www\.\S+|@\w+|\S+@\S+|\d{7,}")
"""What names an account or a place in a tweet: a link, a handle, an address, a long number."""


def _digits_by_writer(sources: list[bytes]) -> bytes:
    """Join MNIST's test digits with the NIST writer of each, column 2 of QMNIST's labels."""
    images, labels, extended = map(gzip.decompress, sources)
    written = np.frombuffer(extended, ">i4", offset=12).reshape(-1, 8)[:10_000, 2]
    writer = np.unique(written, return_inverse=True)[1].astype(np.int16)
    image = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    label = np.frombuffer(labels, np.uint8, offset=8)
    return _npz(image=image, label=label, writer=writer, is_test=_fifth_of_each(writer))


def _femnist_mini(sources: list[bytes]) -> bytes:
    """Return the writers of five client files of LEAF, in the order of the files."""
    files_of = [json.loads(source)["user_data"].values() for source in sources]
    users = [user for file in files_of for user in file]
    label = np.concatenate([user["y"] for user in users]).astype(np.uint8)
    pixels = np.concatenate([user["x"] for user in users])
    sizes = [len(user["y"]) for user in users]
    writer = np.repeat(np.arange(len(users), dtype=np.int16), sizes)
    file = np.repeat(np.arange(len(sources), dtype=np.uint8), [len(file) for file in files_of])
    image = np.rint(pixels * 255).astype(np.uint8).reshape(-1, 28, 28)
    is_test = _fifth_of_each(writer)
    return _npz(image=image, label=label, writer=writer, is_test=is_test, source_file=file[writer])


def _fifth_of_each(writer: NDArray[np.int16]) -> NDArray[np.uint8]:
    rng, is_test = np.random.default_rng(0), np.zeros(len(writer), np.uint8)
    for one in range(writer.max() + 1):
        rows = np.flatnonzero(writer == one)
        is_test[rng.permutation(rows)[: max(1, round(0.2 * len(rows)))]] = 1
    return is_test


def _glove(sources: list[bytes]) -> bytes:
    """Read R's matrix: big-endian numbers by column from byte 60 on, then the names of its rows."""
    content, words, width, at = lzma.decompress(sources[0]), 11_925, 25, 60
    vector = np.frombuffer(content, ">f8", words * width, at).astype("<f4").reshape(width, words).T
    # Each name: four bytes of flags, four of length, and the text.
    at, names = content.index(b"\0\0\0\x10", at + 8 * words * width) + 8, []
    for _ in range(words):
        start, length = at + 8, int.from_bytes(content[at + 4 : at + 8])
        at = start + length
        names.append(content[start:at].decode())
    return _npz(word=np.array(names), vector=vector)


def _shakespeare(sources: list[bytes]) -> bytes:
    """Return each role's text; a sample is a window of it and the next character."""
    leaf = _leaf(SHAKESPEARE, sources[0])
    texts, is_test = [], []
    for role in range(len(leaf.owners)):
        rows = np.flatnonzero(leaf.owner == role)
        rows = rows[_text_order(leaf.x[rows], leaf.y[rows])]
        texts.append(np.concatenate([leaf.x[rows[0]], leaf.y[rows]]).astype(np.uint8))
        is_test.append(leaf.is_test[rows])
    lengths = [(len(text), len(rows)) for text, rows in zip(texts, is_test, strict=True)]
    offsets = np.cumsum([(0, 0), *lengths], axis=0).T
    arrays = {"chars": np.concatenate(texts), "text_offset": offsets[0]}
    arrays |= {"sample_offset": offsets[1], "is_test": np.concatenate(is_test).astype(np.uint8)}
    return _npz(**arrays, role=np.array(leaf.owners), alphabet=np.array(list(ALPHABET)))


def _text_order(x: NDArray[Any], y: Labels) -> list[int]:
    """Return the order that lets each window continue the one before: one role is shuffled."""
    windows = [window.tobytes() for window in x]
    following = [old[1:] + bytes([new]) for old, new in zip(windows, y.tolist(), strict=True)]
    if windows[1:] == following[:-1]:
        return list(range(len(windows)))
    places = {window: place for place, window in enumerate(windows)}
    (first,) = places.keys() - set(following)
    order = [places[first]]
    while (place := places.get(following[order[-1]])) is not None:
        order.append(place)
    return order


def _tweets(sources: list[bytes]) -> bytes:
    """Return tweets without traces of accounts, which become numbers in the order of their names.

    The published rows have another order, and texts that differ in about 2%.
    """
    leaf = _leaf(SENT140, sources[0])
    arrow, parquet = (imported(name, "data", "tweets") for name in ("pyarrow", "pyarrow.parquet"))
    texts = [" ".join(_TRACES.sub(" ", text).split()) for text in leaf.x]
    columns = {"user": leaf.owner.astype(np.int16), "is_test": leaf.is_test.astype(np.uint8)}
    columns |= {"label": leaf.y.astype(np.uint8), "text": texts}
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()


def _leaf(data_set: DataSet, archive: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(io.BytesIO(archive)).extractall(folder)
        return data_set.records(Path(folder))


def _npz(**arrays: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    return content.getvalue()


_MAKERS: dict[str, Callable[[list[bytes]], bytes]] = {
    "digits_by_writer.npz": _digits_by_writer,
    "femnist_mini.npz": _femnist_mini,
    "glove_twitter_25d_12k.npz": _glove,
    "sent140.parquet": _tweets,
    "shakespeare.npz": _shakespeare,
}
FILES = tuple(_MAKERS)


def make_file(name: str, folder: Path, source: str = SOURCE) -> str:
    """Make a missing file of sources on GitHub or a mirror; return a note for its user."""
    path = folder / name
    if path.exists():
        return f"{path}: is there already and stays"
    text = (files("clients") / "datasets" / "published.toml").read_text("utf-8")
    pins = parse_toml(text)[name]
    content = _MAKERS[name](_downloaded(name, source, pins["sources"]))
    DISK.write_whole(path, content)
    if hashlib.sha256(content).hexdigest() == pins["sha256"]:
        return f"{path}: the file of the published rows; {pins['terms']}"
    return f"{path}: other bytes than the file of the published rows; {pins['terms']}"


def _downloaded(name: str, source: str, sources: dict[str, str]) -> list[bytes]:
    from ledger.io.http import HttpFailureError, HttpServer  # noqa: PLC0415 - others do not fetch

    try:
        server = HttpServer(source, TIMEOUT_SECONDS, silence_seconds=SILENCE_SECONDS)
        answers = {path: server.get(f"/{path}", MAX_SOURCE_BYTES) for path in sources}
    except (HttpFailureError, ValueError) as error:
        raise ConfigurationError(f"{name} cannot be fetched: {error}") from error
    for path, answer in answers.items():
        found, known = hashlib.sha256(answer.body).hexdigest(), sources[path]
        if answer.status != 200 or found != known:
            raise ConfigurationError(
                f"{name} cannot be fetched: {path} has status {answer.status} and sha256 "
                f"{found}; must be 200 and {known}"
            )
    return [answer.body for answer in answers.values()]
