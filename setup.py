"""The package's long description: the README with links that work outside of a checkout.

`pyproject.toml` has everything else about the package.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def long_description() -> str:
    """Return the README with links to the repository, or with paths while it has no address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    address = project["urls"].get("Repository")

    def outside(link: re.Match[str]) -> str:
        image, text, target = link.groups()
        if address is not None:
            view = "raw" if image else "blob"
            return f"{image}[{text}]({address}/{view}/v{project['version']}/{target})"
        path = target.partition("#")[0]
        if image or text == path:
            return "" if image else text
        return f"{text} (`{path}`)"

    return RELATIVE_LINK.sub(outside, (ROOT / "README.md").read_text("utf-8"))


if __name__ == "__main__":
    setup(long_description=long_description(), long_description_content_type="text/markdown")
