"""Folders in LEAF's layout, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

UserData = dict[str, tuple[list[Any], list[Any]]]  # inputs and labels of each user


def document(users: UserData) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def written(folder: Path, train: UserData, test: UserData) -> Path:
    for split, users in (("train", train), ("test", test)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        (folder / split / f"all_data_{split}.json").write_text(json.dumps(document(users)))
    return folder
