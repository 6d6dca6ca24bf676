"""Bounds of a `tokenizer.json`, verified before the `tokenizers` library reads it.

The library allocates what a file says: the size that a character map states, a trie of its pieces,
and texts as long as its replacements make them, one of which may double what another has doubled.
A long token that stands for each unknown word, or ends each word, makes long texts of short ones.
Forms that the library reads but never writes are refused, so that nothing is hidden in them.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import TYPE_CHECKING, Any

from ledger.io.json import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_GROWTH = 256
"""Characters that one character of a text may become. NFKC makes 18 of one."""
MAX_PIECE_BYTES = 1 << 23
"""Bytes of the pieces of a unigram model together: mT5's quarter of a million have two million."""
MAX_ADDED_BYTES = 1 << 20
"""Bytes of the added tokens together."""
MAX_COMPONENTS = 100
"""Parts of a normalizer, a pre-tokenizer or a post-processor."""
MAX_SPECIAL_TOKENS = 100
"""Pieces of a template, and tokens of each."""
MAX_MARK_BYTES = 256
"""Bytes of a token that is written again and again: of unknown words, word parts and templates."""

_LISTS = ("normalizers", "pretokenizers", "processors")
_MARKS = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_TEXTS = {"single": 1, "pair": 2}
"""How often a template may have a text: in a sequence of them the later ones take two parts."""


def require_bounded(data: bytes) -> None:
    """Refuse a file that would make the library allocate without bound.

    Raises:
        ValueError: it is no JSON object, repeats a key, or breaks one of the bounds.
    """
    document = _object("the file", parse_json(data, unique_keys=True))
    growth = 1.0
    for name in ("normalizer", "pre_tokenizer"):
        for part in _parts(document, name):
            growth *= _growth(part)
    if growth > MAX_GROWTH:
        raise ValueError(f"it can make {growth:.3g} characters of one, more than {MAX_GROWTH}")
    for part in _parts(document, "post_processor"):
        _require_template(part)
    _require_pieces(_object("model", document.get("model")))
    added = [_object("an added token", token) for token in _list(document.get("added_tokens"))]
    _require_bytes("added tokens", (token.get("content") for token in added), MAX_ADDED_BYTES)


def _parts(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the components of a field, those of sequences too."""
    parts = list(_components(name, document.get(name)))
    if len(parts) > MAX_COMPONENTS:
        raise ValueError(f"its {name} has {len(parts)} parts, more than {MAX_COMPONENTS}")
    return parts


def _components(where: str, part: object) -> Iterator[dict[str, Any]]:
    """Yield a component, and those of which it is a sequence."""
    if part is None:
        return
    fields = _object(where, part)
    if not isinstance(fields.get("type"), str):
        raise ValueError(f"a part of its {where} has no type")  # noqa: TRY004 - of the file
    yield fields
    for name in _LISTS:
        for child in _list(fields.get(name)):
            yield from _components(where, child)


def _growth(normalizer: dict[str, Any]) -> float:
    """Return how many characters a component makes of one at most."""
    growth = 4.0 if normalizer["type"] == "ByteLevel" else 1.0
    if "precompiled_charsmap" in normalizer:
        growth *= max(1, _longest_replacement(normalizer["precompiled_charsmap"]))
    if "prepend" in normalizer:
        growth *= 1 + _length(normalizer["prepend"])
    if "content" in normalizer:
        pattern = normalizer.get("pattern")
        found = pattern.get("String") if isinstance(pattern, dict) else None
        inserted = _length(normalizer["content"])
        # A regular expression may match between any two characters.
        is_text = isinstance(found, str) and found
        growth *= max(1, inserted / len(found)) if is_text and found else 1 + inserted
    return growth


def _longest_replacement(text: object) -> int:
    """Return the bytes of the longest replacement in a character map of sentencepiece."""
    try:
        data = base64.b64decode(text if isinstance(text, str) else "", validate=True)
        (size,) = struct.unpack_from("<I", data)
    except (binascii.Error, struct.error) as error:
        raise ValueError("its character map is no base64 of a map") from error
    if size > len(data) - 4:
        raise ValueError(f"its character map states {size} bytes, and has {len(data) - 4}")
    return max(map(len, data[4 + size :].split(b"\0")))


def _require_template(processor: dict[str, Any]) -> None:
    if not any(name in processor for name in _TEXTS):
        return
    for name, texts in _TEXTS.items():
        pieces = [_object("a piece of a template", piece) for piece in _list(processor.get(name))]
        if len(pieces) > MAX_SPECIAL_TOKENS or sum("Sequence" in piece for piece in pieces) > texts:
            raise ValueError(
                f"its template has a text more than once, or over {MAX_SPECIAL_TOKENS} pieces"
            )
    for token in _object("special_tokens", processor.get("special_tokens")).values():
        fields = _object("a special token", token)
        if max(len(_list(fields.get(name))) for name in ("ids", "tokens")) > MAX_SPECIAL_TOKENS:
            raise ValueError(f"a special token of its template is over {MAX_SPECIAL_TOKENS} tokens")
        _require_bytes("special tokens", iter(_list(fields.get("tokens"))), MAX_MARK_BYTES)


def _require_pieces(model: dict[str, Any]) -> None:
    for name in _MARKS:
        _require_bytes(f"characters of {name}", iter([model.get(name)]), MAX_MARK_BYTES)
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list):  # of a unigram model, with scores
        pieces = (pair[0] if isinstance(pair, list) and pair else None for pair in vocabulary)
        _require_bytes("pieces", pieces, MAX_PIECE_BYTES)


def _require_bytes(what: str, texts: Iterator[object], most: int) -> None:
    size = sum(len(text.encode()) for text in texts if isinstance(text, str))
    if size > most:
        raise ValueError(f"its {what} have {size} bytes, more than {most}")


def _length(text: object) -> int:
    if not isinstance(text, str):
        raise ValueError("a replacement is no text")  # noqa: TRY004 - of the file
    return len(text)


def _object(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is no JSON object")  # noqa: TRY004 - of the file
    return value


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError("a list is none")  # noqa: TRY004 - of the file
    return value
