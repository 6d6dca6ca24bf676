"""Dockerfile, compose file, dashboard and workflow: pinned, no rights, no secrets, right names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.settings import Settings
from clients.configuration.loading import load
from clients.datasets.federated_data import named_stream
from clients.datasets.registry import load_dataset
from tests.api.conftest import serving
from tests.containers.composed import FOLDER, STATE, commands, compose
from tests.docs.test_code_blocks import faults_of_cmfl

ROOT = FOLDER.parents[1]
DOCKERFILE = FOLDER / "Dockerfile"
_PINNED = re.compile(r"[a-z./-]+:\d+\.\d+\.\d+[\w.-]*")
_METRIC = re.compile(r"\bcmfl_\w+")
LEFT_OUT = {"cmfl_requests_created", "cmfl_request_seconds_created"}
"""Series that the dashboard does not show: when a counter began."""


def instructions(name: str) -> list[str]:
    text = DOCKERFILE.read_text("utf-8").replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)


def expressions() -> list[str]:
    board = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
    variables = [str(each["query"]) for each in board["templating"]["list"]]
    return variables + [t["expr"] for panel in board["panels"] for t in panel.get("targets", [])]


def shown_metrics() -> set[str]:
    return {name for expression in expressions() for name in _METRIC.findall(expression)}


def workflow() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    job: dict[str, Any] = document["jobs"]["test"]
    assert document["permissions"] == {"contents": "read"}
    return job


def test_hadolint_finds_no_fault_in_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint is not None
    result = subprocess.run([hadolint, DOCKERFILE], check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_image_is_pinned_and_runs_without_root() -> None:
    (base,) = instructions("FROM")
    assert _PINNED.fullmatch(base)
    assert base.startswith("python:3.11.")
    assert instructions("USER") == ["10001"]
    assert [line for line in instructions("RUN") if "--uid 10001" in line]


def test_what_the_image_copies_is_there() -> None:
    copied = [word for line in instructions("COPY") for word in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", "benchmarks"} <= set(copied)
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    (torch,) = [word for line in instructions("RUN") for word in line.split() if "torch==" in word]
    assert torch in pins


def test_a_service_has_no_rights_and_writes_to_its_volumes_alone() -> None:
    document = compose()
    for name, service in document["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "user", "cap_add", "devices", "env_file"} & service.keys(), name
        for volume in service.get("volumes", []):
            source, place, *_ = volume.split(":")
            assert source in document["volumes"], name
            assert Path(place).parent == Path(STATE), name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name


def test_an_owners_key_is_in_its_own_volume_alone() -> None:
    for owner in ("north", "south", "east"):
        having = {
            name
            for name, service in compose()["services"].items()
            if any(volume.startswith(f"{owner}:") for volume in service.get("volumes", []))
        }
        assert having == {owner, f"{owner}-keys"}


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.name)
def test_no_file_holds_a_secret(file: Path) -> None:
    text = file.read_text("utf-8")
    assert not re.search(r"[0-9a-fA-F]{64}|://[^ ]*@|PRIVATE_KEY|[A-Z]*PASSWORD=", text)


def test_commands_have_the_options_that_they_are_given() -> None:
    named = [*commands()]
    assert {words[0] for _, words in named} == {
        *("keys", "register", "registry", "deploy", "chain", "blobs", "serve", "worker")
    }
    assert {name: faults_of_cmfl(words) for name, words in named if faults_of_cmfl(words)} == {}


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.sh")), ids=lambda script: script.name)
def test_a_script_is_valid_shell(script: Path) -> None:
    assert subprocess.run(["/bin/sh", "-n", script], check=False).returncode == 0
    assert "set -eu" in script.read_text("utf-8")


def test_owners_register_the_samples_that_their_parts_have() -> None:
    configuration = load(path=FOLDER / "federation.toml")
    clients = configuration.protocol.clients
    rng = named_stream(configuration.seed, "data")
    data = load_dataset(configuration.data.choice(), clients, rng)
    assert set(data.sample_counts) == {240}
    assert "--samples 240" in (FOLDER / "owner.sh").read_text("utf-8")


def test_no_service_loses_its_network_where_another_is_restarted() -> None:
    services = compose()["services"]
    modes = {name: service.get("network_mode") for name, service in services.items()}
    lasting = {"chain", "store", "service", "north", "south", "east"}
    assert {name for name, mode in modes.items() if mode == "service:network"} == lasting
    assert {name for name, mode in modes.items() if mode is None} == services.keys() - lasting
    assert {name for name, service in services.items() if "ports" in service} == {"network"}
    assert services["network"]["command"] == ["sleep", "infinity"]


def test_prometheus_scrapes_what_compose_starts() -> None:
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    targets = {t for job in scraped for each in job["static_configs"] for t in each["targets"]}
    services = compose()["services"]
    ports = {service["environment"]["METRICS_PORT"] for service in services.values()
             if "METRICS_PORT" in service.get("environment", {})}  # fmt: skip
    for name in ("chain", "store", "service"):
        ports.add(services[name]["command"][services[name]["command"].index("--port") + 1])
    assert targets == {f"127.0.0.1:{port}" for port in ports}


def test_the_dashboard_shows_every_metric_of_the_service(tmp_path: Path) -> None:
    with serving(Settings(home=tmp_path)) as client:
        client.get("/health")
        families = [*text_string_to_metric_families(client.get("/metrics").text)]
    series = {sample.name for family in families for sample in family.samples}
    shown = {name for name in shown_metrics() if not name.startswith("cmfl_worker_")}
    assert shown == series - LEFT_OUT
    assert series >= LEFT_OUT


def test_the_workflow_runs_the_script_that_the_repository_has() -> None:
    job = workflow()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text("utf-8")
    (base,) = instructions("FROM")
    assert job["container"].split("-")[0] == base.split("-")[0]
    uses = [step["uses"] for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", each) for each in uses)
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert "secrets." not in text
