"""A tokenizer's file cannot make the library allocate without bound."""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from clients.datasets import tokenizer_bounds
from clients.datasets.own_texts import tokenizer_at
from clients.datasets.tokenizer_bounds import require_bounded
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
EMPTY_TRIE = bytes(4)


def file_of(**fields: Any) -> bytes:
    names = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
    document = dict.fromkeys(names) | {"version": "1.0", "added_tokens": [], "model": WORDS}
    return json.dumps(document | fields).encode()


def replacement(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content}


def normalizers(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def character_map(data: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def template(*pieces: dict[str, Any], tokens: int = 1) -> dict[str, Any]:
    special = {"id": "x", "ids": [0] * tokens, "tokens": ["x"] * tokens}
    return {
        "type": "TemplateProcessing",
        "single": list(pieces),
        "pair": [],
        "special_tokens": {"x": special},
    }


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
MARK = {"SpecialToken": {"id": "x", "type_id": 0}}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"normalizer": normalizers(replacement("aa"), replacement("aa"))},
        {"normalizer": normalizers({"type": "Prepend", "prepend": "▁"}, replacement("▁"))},
        {"normalizer": replacement(" ", Regex=" {2,}")},
        {"normalizer": character_map(EMPTY_TRIE + b"fi\0ffi\0")},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, BYTES]}},
        {"post_processor": template(MARK, TEXT, MARK)},
        {"post_processor": {**template(TEXT), "pair": [TEXT, MARK, TEXT]}},
        {"model": WORDS | {"type": "WordPiece", "continuing_subword_prefix": "##"}},
        {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["b", -1.0]]}},
    ],
)
def test_what_models_have_is_within_the_bounds(fields: dict[str, Any]) -> None:
    require_bounded(file_of(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"normalizer": normalizers(*[replacement("aa")] * 9)},
        {"normalizer": replacement("a" * 257)},
        {"normalizer": normalizers(*[replacement("a", Regex="b*")] * 9)},
        {"normalizer": {"type": "Prepend", "prepend": "a" * 257}},
        {"normalizer": normalizers(*[{"type": "ByteLevel"}] * 5)},
        {"normalizer": character_map(struct.pack("<I", 0xFFFFFFF0))},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 5}},
        {"post_processor": template(TEXT, TEXT)},
        {"post_processor": template(*[MARK] * 101)},
        {"post_processor": template(TEXT, MARK, tokens=101)},
        {"post_processor": {**template(TEXT), "pair": [TEXT] * 3}},
        {"model": WORDS | {"unk_token": "a" * 257}},
        {"added_tokens": [{"id": 2, "content": "a" * ((1 << 20) + 1)}]},
    ],
)
def test_what_would_grow_without_bound_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        require_bounded(file_of(**fields))


def test_pieces_of_a_model_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_bounds, "MAX_PIECE_BYTES", 10)
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["aaaa", 0.0], ["äää", -1.0]]}
    require_bounded(file_of(model=model))
    model["vocab"] = [["aaaa", 0.0], ["äää", -1.0], ["b", -1.0]]
    with pytest.raises(ValueError, match="its pieces have 11 bytes, more than 10"):
        require_bounded(file_of(model=model))


def test_a_repeated_field_hides_no_other() -> None:
    data = file_of().replace(b'"normalizer": null', b'"normalizer": null, "normalizer": null')
    with pytest.raises(ValueError, match="twice"):
        require_bounded(data)


def test_a_file_is_refused_before_the_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(file_of(normalizer=normalizers(*[replacement("aa")] * 40)))
    with pytest.raises(ConfigurationError, match=r"1\.1e\+12 characters of one") as refused:
        tokenizer_at(path)
    assert "\n" not in str(refused.value)


def trained(kind: str) -> Tokenizer:
    """Return a tokenizer as one of the families has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from tokenizers import normalizers as parts

    if kind == "gpt2":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.post_processor = processors.ByteLevel()
        made.decoder = decoders.ByteLevel()
    elif kind == "bert":
        made = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
        made.normalizer = parts.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.post_processor = processors.TemplateProcessing(
            single="[UNK] $A [UNK]", pair="[UNK] $A [UNK] $B:1", special_tokens=[("[UNK]", 0)]
        )
    else:
        made = Tokenizer(models.Unigram([("a", 0.0)], 0))
        made.normalizer = parts.Sequence(
            [parts.Nmt(), parts.NFKC(), parts.Replace(" {2,}", " "), parts.Prepend("▁")]
        )
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


@pytest.mark.parametrize("kind", ["gpt2", "bert", "t5"])
def test_files_that_the_library_writes_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tokenizer.json"
    trained(kind).save(str(path))
    assert tokenizer_at(path).encode("a").ids is not None
