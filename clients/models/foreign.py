"""What a user's own code did wrong, in one line of ours."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

_OURS = str(Path(__file__).parents[1])
_TORCHS = str(Path(torch.__file__).parent)
_LONGEST = 300


def in_one_line(error: BaseException) -> str:
    """Return what an error says, and where in the user's own code it came up.

    Args:
        error: raised by code that is not ours.

    Returns:
        Its kind, the first line of its message and, where one can be told, file and line.
    """
    said = next(iter(str(error).splitlines()), "")[:_LONGEST]
    sentence = f"{type(error).__name__}: {said}" if said else type(error).__name__
    lines = [
        f"{Path(frame.f_code.co_filename).name}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((_OURS, _TORCHS, "<"))
    ]
    return f"{sentence} ({lines[-1]})" if lines else sentence
