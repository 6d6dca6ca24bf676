"""Columns of Parquet and Arrow files as NumPy arrays: numbers, equally long lists, and images."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.datasets.files.data_archive import MAX_OWN_BYTES
from clients.datasets.files.extra import imported
from ledger.protocol.errors import ConfigurationError

LONGEST_TEXT = 200
MOST_PIXELS = 2**24
"""Limit of the numbers in one image."""
_IMAGE_FORMATS = ("PNG", "JPEG")
_CHANNELS = {"L": 1, "RGB": 3}
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error)


def values_of(where: str, column: Any) -> NDArray[Any]:
    """Return a column's entries, shape (rows, ...).

    Numbers and truth values keep their type, text becomes text of at most `LONGEST_TEXT`
    characters, lists become one more dimension, images bytes of shape (channels, height, width).
    """
    types = imported("pyarrow.types", "data", "Arrow files")
    type_ = column.type
    if column.null_count:
        raise ConfigurationError(f"{where}: {column.null_count} entries are missing")
    if hasattr(column, "storage"):  # such as Array2D of the Hugging Face library
        return values_of(where, column.storage)
    if types.is_dictionary(type_):
        # The entries are checked before they are repeated: one long entry may stand in many rows.
        entries: NDArray[Any] = values_of(where, column.dictionary)
        return np.asarray(entries[np.asarray(column.indices)])
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_floating(type_):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if types.is_string(type_) or types.is_large_string(type_):
        return _texts(where, column)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _lists(where, column)
    if types.is_struct(type_) and any(_is_image(types, field) for field in type_):
        return _images(where, column.field("bytes"))
    raise ConfigurationError(
        f"{where}: must hold numbers, equally long lists of them, images or text; holds {type_}"
    )


def _is_image(types: Any, field: Any) -> bool:
    kinds = (types.is_binary, types.is_large_binary, types.is_null)  # null where none is there
    return field.name == "bytes" and any(is_kind(field.type) for is_kind in kinds)


def _texts(where: str, column: Any) -> NDArray[Any]:
    compute = imported("pyarrow.compute", "data", "Arrow files")
    longest = compute.max(compute.utf8_length(column)).as_py() or 0
    if longest > LONGEST_TEXT:
        raise ConfigurationError(
            f"{where}: a text of {longest} characters, more than {LONGEST_TEXT}"
        )
    return np.array(column.to_pylist(), dtype=np.str_)


def _lists(where: str, column: Any) -> NDArray[Any]:
    compute = imported("pyarrow.compute", "data", "Arrow files")
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if len(lengths) and lengths.min() != lengths.max():
        raise ConfigurationError(
            f"{where}: rows of {lengths.min()} .. {lengths.max()} entries; all must be equally "
            f"long: pad them"
        )
    entries = values_of(where, column.flatten())
    return entries.reshape(len(column), -1, *entries.shape[1:])


def _images(where: str, column: Any) -> NDArray[np.uint8]:
    if column.null_count:
        raise ConfigurationError(f"{where}: {column.null_count} images are not in the file itself")
    if not len(column):
        return np.zeros((0, 1, 1, 1), np.uint8)
    first = decoded_image(where, column[0].as_py())
    if len(column) * first.nbytes > MAX_OWN_BYTES:
        raise ConfigurationError(
            f"{where}: {len(column)} images of {first.nbytes} bytes, more than {MAX_OWN_BYTES}"
        )
    images = np.empty((len(column), *first.shape), np.uint8)
    for index, content in enumerate(column):
        image = decoded_image(where, content.as_py())
        if image.shape != first.shape:
            raise ConfigurationError(f"{where}: images of different sizes or modes")
        images[index] = image
    return images


def decoded_image(where: str, content: bytes) -> NDArray[np.uint8]:
    """Return an upright image, shape (channels, height, width), after its size was checked."""
    pillow = imported("PIL.Image", "data", "images")
    turns = imported("PIL.ImageOps", "data", "images")
    try:
        with pillow.open(io.BytesIO(content), formats=_IMAGE_FORMATS) as image:
            if image.mode not in _CHANNELS:
                raise ConfigurationError(
                    f"{where}: an image of mode {image.mode}; must be {' or '.join(_CHANNELS)}"
                )
            width, height = image.size
            if width * height * _CHANNELS[image.mode] > MOST_PIXELS:
                raise ConfigurationError(
                    f"{where}: an image of {width} × {height} pixels, over {MOST_PIXELS} numbers"
                )
            pixels = np.asarray(turns.exif_transpose(image), dtype=np.uint8)
    except (*_DAMAGE, pillow.DecompressionBombError) as error:
        raise ConfigurationError(f"{where}: not a readable image ({error})") from error
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
