"""The OpenAPI document as a file, to generate clients from: `docs/openapi.json`.

python -m api.document > docs/openapi.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from api.app import create_app
from api.settings import Settings


def text() -> str:
    """Return the document; it does not depend on settings."""
    document = create_app(Settings(home=Path())).openapi()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
