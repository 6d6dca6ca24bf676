"""Who may ask, how often, and what operators see: no secret, no foreign page, no endless label."""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from api.http.middleware import HEADERS
from api.settings import Settings
from tests.api.conftest import deployments, read, refused, serving

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

PROXY = (ip_network("127.0.0.1/32"),)
TOKEN = "a token that this test has made up"


def test_every_answer_has_the_safe_headers(client: httpx.Client, root: str) -> None:
    paths = ("/health", "/openapi.json", "/metrics", "/v1/status", root, f"{root}/rounds/1", "/no")
    for path in paths:
        for _ in range(2):
            answer = client.get(path)
            names = {name.lower() for name in answer.headers}
            assert {name.decode() for name in HEADERS} <= names, path
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
            assert "'unsafe" not in answer.headers["content-security-policy"]


def test_a_token_is_asked_for_where_there_is_one(home: Path) -> None:
    with serving(Settings(home=home, tokens=("another made up token", TOKEN))) as client:
        assert client.get("/health").status_code == 200
        shown = ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN[:-1]}"]
        for text in shown:
            answer = client.get("/v1/status", headers={"Authorization": text})
            refused(answer, 401, "token-needed")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in answer.text
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        path = f"{deployments(client)[0]['links']['self']}/rounds/1"
        assert read(client, path)["round"] == 1
        del client.headers["Authorization"]
        refused(client.get(path), 401, "token-needed")  # also what is kept
        refused(client.get("/metrics"), 401, "token-needed")


def test_nobody_asks_oftener_than_the_rate(home: Path) -> None:
    with serving(Settings(home=home, requests_per_minute=5)) as client:
        answers = [client.get("/v1/chains") for _ in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
        refused(answers[-1], 429, "rate-exceeded")
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 120
        assert client.get("/health").status_code == 200
        assert client.get("/dashboard/js/main.js").status_code == 200, "a page has dozens of files"


def test_behind_a_proxy_the_rate_is_of_whoever_asked_it(home: Path) -> None:
    one, other = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
    network = {"X-Forwarded-For": "2001:db8::1"}, {"X-Forwarded-For": "2001:db8::2"}
    made_up = {"X-Forwarded-For": "198.51.100.9, 192.0.2.1"}  # the proxy adds what it sees
    with serving(Settings(home=home, requests_per_minute=1, trusted_proxies=PROXY)) as client:
        asked = [one, other, one, made_up, *network, {}, {}]
        found = [client.get("/v1/chains", headers=headers).status_code for headers in asked]
    assert found == [200, 200, 429, 429, 200, 429, 200, 429]
    with serving(Settings(home=home, requests_per_minute=1)) as client:
        found = [client.get("/v1/chains", headers=headers).status_code for headers in (one, other)]
    assert found == [200, 429], "whoever asks directly cannot call itself by another name"


def test_only_a_named_origin_may_read_the_answers(home: Path) -> None:
    with serving(
        Settings(home=home, allowed_origins=("https://audit.example",), tokens=(TOKEN,))
    ) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        named = client.get("/v1/chains", headers={"Origin": "https://audit.example"})
        assert named.headers["access-control-allow-origin"] == "https://audit.example"
        other = client.get("/v1/chains", headers={"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers
        asking = {"Origin": "https://audit.example", "Access-Control-Request-Method": "POST"}
        assert client.options("/v1/chains", headers=asking).status_code == 200, "has no token yet"
        refused(client.get("/v1/chains", headers={"Authorization": "none"}), 401, "token-needed")


@pytest.mark.parametrize(
    "settings",
    [
        {"tokens": ("short",)},
        {"allowed_origins": ("*",)},
        {"allowed_origins": ("https://a.example/path",)},
        {"requests_per_minute": 0},
        {"trusted_proxies": ("*",)},
        {"trusted_proxies": ("192.0.2.1/8",)},
    ],
)
def test_settings_that_would_open_the_door_are_refused(home: Path, settings: object) -> None:
    with pytest.raises(ValidationError):
        Settings(home=home, **settings)  # type: ignore[arg-type]


def test_metrics_are_labelled_by_endpoint_and_not_by_path(home: Path) -> None:
    with serving(Settings(home=home)) as client:
        root = deployments(client)[0]["links"]["self"]
        for number in (1, 2, 1, 1, 999):
            client.get(f"{root}/rounds/{number}?full=true")
        for path in ("/made/up/1", "/made/up/2"):
            client.get(path)
        text = client.get("/metrics").text
    found = dict(re.findall(r"^cmfl_requests_total\{(.*?)\} (\S+)$", text, re.MULTILINE))
    pattern = "/v1/chains/{chain}/deployments/{address}/rounds/{number}"
    assert found[f'endpoint="{pattern}",status="200"'] == "4.0"
    assert found[f'endpoint="{pattern}",status="404"'] == "1.0"
    assert found['endpoint="none",status="404"'] == "2.0"
    assert root.rpartition("/")[2] not in text
    assert "cmfl_request_seconds_bucket" in text


def test_a_request_is_logged_without_its_query_and_token(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(Settings(home=home, logs_requests=True, tokens=(TOKEN,))) as client:
        client.get(f"/v1/chains?x={TOKEN}", headers={"Authorization": f"Bearer {TOKEN}"})
        client.get("/a%0aline%1b[2J")
    said = capfd.readouterr()
    lines = [line for line in (said.out + said.err).splitlines() if "request" in line]
    assert len(lines) == 2
    assert TOKEN not in said.out + said.err
    assert "\x1b[2J" not in said.out + said.err
