"""What forked processes of these tests run: they say, wait, fail, or listen."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
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
        case ["chain" | "blobs", "serve", *options]:
            answering(int(options[options.index("--port") + 1]))
        case words:
            raise ValueError(words)


class Answers(BaseHTTPRequestHandler):
    """Says of every chain that it has number 1."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": "0x1"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def answering(port: int) -> None:
    HTTPServer(("127.0.0.1", port), Answers).serve_forever()
