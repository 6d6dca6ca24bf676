"""Screenshots of the dashboard, made from a real run, for the README and the pages.

    python docs/screenshots.py

plays 30 attacked rounds of the preset `digits` into a temporary home, serves it, and writes
docs/screenshots/*.png with headless Chromium (CMFL_CHROMIUM names another than /usr/bin/chromium).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

TARGET = Path(__file__).parent / "screenshots"
CHROMIUM = Path(os.environ.get("CMFL_CHROMIUM", "/usr/bin/chromium"))
CMFL = (sys.executable, "-m", "cmfl")
RUN = (
    *("--preset", "digits", "--run", "attacked", "--set", "protocol.rounds=30"),
    *("--set", "malice.attack=back-gradient", "--set", "malice.malicious_rate=0.3"),
)


def main() -> None:
    """Play, serve, and photograph the run, a round, and the clients."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = str(Path(folder) / "home")
        subprocess.run([*CMFL, "run", "--home", home, *RUN], check=True)
        served = subprocess.Popen(
            [*CMFL, "serve", "--home", home, "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        try:
            addresses = (re.search(r"http://[\d.]+:\d+", line) for line in served.stdout or ())
            address = next(filter(None, addresses), None)
            if address is None:
                raise RuntimeError("the service ended before it printed its address")
            _photograph(address[0])
        finally:
            served.terminate()
            served.wait()


def _photograph(address: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(
            base_url=address, viewport={"width": 1280, "height": 860}, reduced_motion="reduce"
        )
        chain = httpx.get(f"{address}/v1/chains").json()["chains"][0]["name"]
        deployments = httpx.get(f"{address}/v1/chains/{chain}/deployments").json()["deployments"]
        run = f"#/runs/{chain}/{deployments[0]['address']}"
        views = {"run": run, "round": f"{run}/rounds/20", "clients": f"{run}/clients"}
        for name, view in views.items():
            page.goto(f"/dashboard/{view}")
            page.locator("main h1").first.wait_for()
            page.wait_for_load_state("networkidle")
            page.screenshot(path=TARGET / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
