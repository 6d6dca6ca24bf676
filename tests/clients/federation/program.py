"""What forked processes of these tests run: they say, wait, fail, or listen."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main() -> None:
    match sys.argv[1:]:
        case ["say", *words]:
            sys.stdout.write(" ".join(words))
        case ["variable", name]:
            sys.stdout.write(os.environ[name])
        case ["code", number]:
            sys.exit(int(number))
        case ["fail", words]:
            raise ValueError(words)
        case ["count", path]:
            for counted in range(100_000):
                Path(path).write_text(str(counted), "ascii")
                time.sleep(0.005)
        case ["fill", count]:
            held = bytearray(int(count))
            sys.stdout.write(str(len(held)))
        case words:
            raise ValueError(words)
