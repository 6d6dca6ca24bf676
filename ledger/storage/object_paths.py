"""The paths of objects that a process takes from others: of blobs and of mail, and no other."""

from __future__ import annotations

import re

_NUMBER = "(?:0|[1-9][0-9]{0,19})"
_MAIL = re.compile(
    rf"mail/{_NUMBER}/[0-9a-f]{{40}}/[0-9a-f]{{64}}/(?P<round>{_NUMBER})/[0-9]{{1,2}}/[0-9a-f]{{64}}"
)
_BLOB = re.compile(r"(?P<start>[0-9a-f]{2})/(?P=start)[0-9a-f]{62}")


def is_blob(path: str) -> bool:
    """Return whether a path is that of a blob."""
    return _BLOB.fullmatch(path) is not None


def mail_round(path: str) -> int | None:
    """Return the round of a path of mail; None if it is another path."""
    match = _MAIL.fullmatch(path)
    return None if match is None else int(match["round"])
