"""`cmfl log`, `cmfl witness` and `cmfl audit --witness-policy`: an honest day, and the attacks."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import cmfl as package
from cmfl import simulating
from cmfl.commands import witness
from ledger.transparency.notes import parse_vkey
from tests.cmfl.commands.conftest import Result, cmfl, refusal, succeeds
from tests.docs.test_code_blocks import PASSWORD
from tests.processes import Forks
from tests.support.keys import write_keystore
from tests.transparency.serving import log_at, witness_at
from tests.transparency.support import WITNESSES

pytestmark = pytest.mark.xdist_group("processes")
NAME = ("--name", "example.org/cmfl")


@dataclass(frozen=True)
class Published:
    """A run of three rounds, the key of its log, and two witnesses at work."""

    folder: Path
    key: str
    urls: tuple[str, str]

    def publish(self, *options: object, out: Path | None = None) -> Result:
        home = ("--home", self.folder / "home", *NAME, *signing(self.folder))
        policy = ("--witness-policy", self.folder / "policy")
        return cmfl("log", "publish", *home, "--out", out or self.folder / "log", *policy, *options)

    def audited(self, home: str, *options: object) -> Result:
        policy = ("--witness-policy", self.folder / "policy")
        return cmfl("audit", "--home", self.folder / home, *policy, *options)


def signing(folder: Path) -> tuple[object, ...]:
    return ("--keystore", folder / "log.json", "--password-file", folder / "password")


def write_policy(folder: Path, key: str, urls: tuple[str, str]) -> None:
    lines = [f"log {key}"]
    lines += [f"witness W{number} {WITNESSES[number].verifier} {urls[number]}" for number in (0, 1)]
    (folder / "policy").write_text("\n".join([*lines, "group both all W0 W1", "quorum both\n"]))


def play_and_copy(folder: Path) -> None:
    """Play a run, with a copy of its home after two rounds; and another on a chain of its name."""

    def copy(done: int, _total: int, _note: str = "") -> None:
        if done == 2:
            shutil.copytree(folder / "home", folder / "older")

    with patch.object(simulating, "tracking", lambda *_, **__: nullcontext(copy)):
        package.run("smoke", home=folder / "home", rounds=3, progress=False)
    manifest = json.loads((folder / "home" / "runs" / "run" / "deployment.json").read_text())
    chain = ("--chain-id", manifest["chain_id"], "--rounds", 3)
    succeeds("run", "--preset", "smoke", "--set", "seed=1", "--home", folder / "forked", *chain)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    folder: Path = tmp_path_factory.mktemp("witnessed")
    (folder / "password").write_text(PASSWORD)
    write_keystore(folder / "log.json", bytes([3] * 32))
    play_and_copy(folder)
    key = succeeds("log", "key", "--home", folder / "home", *NAME, *signing(folder)).out.strip()
    with ExitStack() as stack:
        logs = [parse_vkey(key)]
        first, second = (
            stack.enter_context(witness_at(folder / f"state{n}", WITNESSES[n], time.time, logs))
            for n in (0, 1)
        )
        yield Published(folder, key, (first, second))


@pytest.fixture(scope="module")
def _cosigned(published: Published) -> None:
    write_policy(published.folder, published.key, published.urls)
    done = published.publish("--json")
    assert (done.code, done.json["cosigned"]) == (0, ["W0", "W1"]), done


@pytest.fixture
def witnessed(published: Published, _cosigned: None) -> Published:
    """The log with all of its rounds, cosigned by both witnesses, and a policy of them."""
    write_policy(published.folder, published.key, published.urls)
    return published


def test_a_witnessed_run_passes_and_names_its_witnesses(witnessed: Published) -> None:
    done = witnessed.audited("home")
    assert done.code == 0, done
    assert "A quorum of witnesses (W0, W1) confirms that the log " in done.out
    assert witnessed.audited("home", "--json", "--strict").json["witnessed"]["rounds"] == 3


def test_a_rolled_back_home_is_refused(witnessed: Published) -> None:
    assert cmfl("audit", "--home", witnessed.folder / "older").code == 0
    done = witnessed.audited("older")
    assert done.code == 1
    assert "signed 3 rounds of this run; in fact only 2 have ended here" in done.out


def test_a_forked_chain_file_is_refused(witnessed: Published) -> None:
    """Another history under the same chain id and address, consistent in itself."""
    assert cmfl("audit", "--home", witnessed.folder / "forked").code == 0
    done = witnessed.audited("forked")
    assert done.code == 1
    assert "this is another history of the run" in done.out


def test_an_old_checkpoint_beside_an_old_home_does_not_help(
    published: Published, tmp_path: Path
) -> None:
    """The owner hands both out, and serves the old checkpoint itself; witnesses know better."""
    old = tmp_path / "log"
    write_policy(published.folder, published.key, published.urls)
    published.publish()
    older = ("--home", published.folder / "older")
    succeeds("log", "publish", *older, *NAME, *signing(published.folder), "--out", old)
    done = published.audited("older", "--checkpoint", old)
    assert done.code == 1, done
    # With no word of any witness, an old checkpoint says nothing of what is newest.
    alone = policy_without_urls(published, tmp_path)
    done = cmfl("audit", *older, "--witness-policy", alone, "--checkpoint", old)
    assert done.code == 3
    assert "0 of 2 witnesses have cosigned the 2 entries" in done.out


def policy_without_urls(published: Published, folder: Path) -> Path:
    lines = (published.folder / "policy").read_text().splitlines()
    path = folder / "policy"
    path.write_text("\n".join(line.partition(" http://")[0] for line in lines))
    return path


def test_a_checkpoint_may_be_too_old(witnessed: Published, tmp_path: Path) -> None:
    policy = ("--witness-policy", policy_without_urls(witnessed, tmp_path))
    given = ("audit", "--home", witnessed.folder / "home", *policy)
    place = ("--checkpoint", witnessed.folder / "log")
    assert cmfl(*given, *place).code == 0
    done = cmfl(*given, *place, "--checkpoint-max-age", 0)
    assert done.code == 3
    assert "hours old" in done.out


@pytest.mark.parametrize("age", ["nan", -1])
def test_an_age_that_is_no_number_of_hours_is_refused(witnessed: Published, age: object) -> None:
    """Beside NaN no cosignature would be too old."""
    policy = ("--witness-policy", witnessed.folder / "policy")
    given = ("audit", "--home", witnessed.folder / "home", *policy)
    assert "hours" in refusal(*given, f"--checkpoint-max-age={age}")
    with pytest.raises(package.ConfigurationError, match="hours"):
        package.audit(
            witnessed.folder / "home", witness_policy=policy[1], checkpoint_max_age=float(str(age))
        )


def test_no_checkpoint_at_all_is_not_checkable(witnessed: Published) -> None:
    write_policy(witnessed.folder, witnessed.key, ("http://127.0.0.1:9", "http://127.0.0.1:9"))
    done = witnessed.audited("home")
    assert done.code == 3
    assert "no quorum of witnesses confirms this run: http://127.0.0.1:9: unreachable" in done.out


def test_one_witness_less_than_the_quorum_is_not_checkable(witnessed: Published) -> None:
    write_policy(witnessed.folder, witnessed.key, (witnessed.urls[0], "http://127.0.0.1:9"))
    assert witnessed.audited("home").code == 3
    # The log's own copy has both cosignatures.
    done = witnessed.audited("home", "--checkpoint", witnessed.folder / "log")
    assert done.code == 0


def test_the_python_face_asks_witnesses_too(witnessed: Published) -> None:
    policy = witnessed.folder / "policy"
    assert package.audit(witnessed.folder / "home", witness_policy=policy, progress=False).passed
    places = [witnessed.folder / "log"]
    found = package.audit(
        witnessed.folder / "older", witness_policy=policy, checkpoints=places, progress=False
    )
    assert found.outcome == "failed"


def test_a_document_is_held_against_witnesses_too(witnessed: Published, tmp_path: Path) -> None:
    """What an older copy of a home leads to is true of it, and old."""
    policy = ("--witness-policy", witnessed.folder / "policy")
    for home in ("home", "older"):
        given = ("--home", witnessed.folder / home)
        succeeds("export", "attestation", *given, "--out", tmp_path / home)
        assert cmfl("verify", "attestation", tmp_path / home, *given).code == 0
    kept = ("--head", json.loads((tmp_path / "home").read_text())["predicate"]["head"])
    for more in (policy, kept):
        checked = ("verify", "attestation", tmp_path / "older", "--home")
        assert cmfl(*checked, witnessed.folder / "older", *more).code == 1
        done = cmfl(*checked, witnessed.folder / "home", *more)
        assert done.code == 0, done
        assert "the run has continued" in done.out
    write_policy(witnessed.folder, witnessed.key, ("http://127.0.0.1:9", "http://127.0.0.1:9"))
    done = cmfl(
        *("verify", "attestation", tmp_path / "home", "--home", witnessed.folder / "home"),
        *(*policy, "--json"),
    )
    assert (done.code, done.json["state"]) == (3, "unconfirmed")
    assert any("quorum" in note for note in done.json["notes"])


def test_a_log_of_a_rolled_back_home_is_not_published(witnessed: Published) -> None:
    older = ("--home", witnessed.folder / "older")
    out = ("--out", witnessed.folder / "log")
    done = cmfl("log", "publish", *older, *NAME, *signing(witnessed.folder), *out)
    assert done.code == 1
    assert "has signed 3 entries, and the chain has 2 ended rounds" in done.err


def test_what_is_published_is_read_while_no_other_process_publishes(
    witnessed: Published, tmp_path: Path
) -> None:
    """A slow reader would else have fewer rounds than the key has signed meanwhile."""
    read = witness._entries_of
    others: list[Result] = []

    def slowly(*arguments: Any, **options: Any) -> Any:
        found = read(*arguments, **options)
        if not others:
            others.append(witnessed.publish(out=tmp_path / "log"))
        return found

    with patch.object(witness, "_entries_of", slowly):
        assert witnessed.publish(out=tmp_path / "log").code == 0
    assert [(other.code, "serves it" in other.err) for other in others] == [(2, True)]


def test_a_log_is_verified_file_by_file(witnessed: Published, tmp_path: Path) -> None:
    own = witnessed.folder / "log"
    with log_at(own) as url:
        done = succeeds("log", "verify", url, "--log", witnessed.key)
    assert "3 rounds, and every file matches its hash" in done.out
    assert "  round 3" in done.out.splitlines()
    damaged = tmp_path / "log"
    shutil.copytree(own, damaged)
    tile = damaged / "tile" / "0" / "000.p" / "3"
    tile.write_bytes(tile.read_bytes()[::-1])
    done = cmfl("log", "verify", damaged, "--log", witnessed.key)
    assert (done.code, done.out) == (1, "")
    assert "tile/0/000.p/3 does not match" in done.err
    tile.unlink()
    assert cmfl("log", "verify", damaged, "--log", witnessed.key).code == 3


def test_a_log_is_compared_with_a_home_round_by_round(witnessed: Published) -> None:
    log = (witnessed.folder / "log", "--log", witnessed.key)
    same = succeeds("log", "compare", *log, "--home", witnessed.folder / "home")
    assert "3 of 3 ended rounds" in same.out
    for home, sentence in (("older", "ends with round 2"), ("forked", "round 1 differs")):
        done = cmfl("log", "compare", *log, "--home", witnessed.folder / home)
        assert done.code == 1
        assert sentence in done.out


def test_a_head_is_proven_offline_and_holds_a_clients_proof(
    witnessed: Published, tmp_path: Path
) -> None:
    """Nobody kept a head: the proof of the log gives the one that `verify client` needs."""
    folder, proof = witnessed.folder, tmp_path / "head.tlog-proof"
    given = (folder / "log", "--log", witnessed.key, "--round", 3, "--out", proof)
    succeeds("log", "prove", *given)
    checked = ("log", "head", proof, "--witness-policy", folder / "policy")
    found = succeeds(*checked, "--json").json
    assert (found["round"], found["witnesses"]) == (3, ["W0", "W1"])
    assert f"--head {found['head']}" in succeeds(*checked).out
    part = ("--round", 3, "--client", 3)
    client = tmp_path / "client.json"
    succeeds("export", "proof", "--home", folder / "home", *part, "--out", client)
    succeeds("verify", "client", *part, "--proof", client, "--head", found["head"])
    changed = proof.read_bytes().replace(b"index 2", b"index 1")
    proof.write_bytes(changed)
    done = cmfl(*checked)
    assert (done.code, done.out) == (1, "")
    proof.write_bytes(changed[:40])
    assert "is not a proof of a logged head" in refusal(*checked)
    assert "has 3 rounds" in refusal("log", "prove", *given[:-3], 4, "--out", proof)


def test_a_head_that_too_few_have_cosigned_is_left_open(
    witnessed: Published, tmp_path: Path
) -> None:
    home = ("--home", witnessed.folder / "home", *NAME, *signing(witnessed.folder))
    succeeds("log", "publish", *home, "--out", tmp_path / "log")
    proof = tmp_path / "proof"
    given = (tmp_path / "log", "--log", witnessed.key, "--round", 1, "--out", proof)
    succeeds("log", "prove", *given)
    done = cmfl("log", "head", proof, "--witness-policy", witnessed.folder / "policy")
    assert done.code == 3
    assert "cosigned by no witness" in done.out


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [("quorum none", "quorum none requires no witness"), (None, "No such file or directory")],
)
def test_a_wrong_policy_is_refused(
    witnessed: Published, tmp_path: Path, policy: str | None, sentence: str
) -> None:
    path = tmp_path / "wrong"
    if policy is not None:
        path.write_text(policy)
    home = ("--home", witnessed.folder / "home")
    assert sentence in refusal("audit", *home, "--witness-policy", path)


def test_a_policy_of_another_run_is_refused(witnessed: Published, tmp_path: Path) -> None:
    succeeds("run", "--preset", "smoke", "--home", tmp_path / "other", "--rounds", 1)
    policy = ("--witness-policy", witnessed.folder / "policy")
    said = refusal("audit", "--home", tmp_path / "other", *policy)
    assert "has no log of this run, whose origin ends with /" in said


def test_a_checkpoint_needs_a_policy(witnessed: Published) -> None:
    home = ("--home", witnessed.folder / "home")
    assert "--witness-policy" in refusal("audit", *home, "--checkpoint", "x")
    assert "--witness-policy" in refusal("audit", *home, "--checkpoint-max-age", 1)


def test_the_key_of_a_witness_is_no_key_of_a_log(witnessed: Published, tmp_path: Path) -> None:
    key = ("--log", WITNESSES[0].verifier)
    place = witnessed.folder / "log"
    state = ("--name", "w", *signing(witnessed.folder), "--folder", tmp_path / "state")
    for given in (
        ("log", "verify", place),
        ("log", "compare", place, "--home", witnessed.folder / "home"),
        ("log", "prove", place, "--round", 1, "--out", tmp_path / "proof"),
        ("witness", "serve", *state, "--port", 0),
    ):
        assert "is a witness's; must be a log's" in refusal(*given, *key)


def test_a_killed_witness_process_goes_on_where_it_was(
    published: Published, forks: Forks, tmp_path: Path
) -> None:
    key = ("--name", "w.example", *signing(published.folder))
    serve = ("witness", "serve", *key, "--folder", tmp_path / "state", "--log", published.key)
    vkey = succeeds("witness", "key", *key).out.strip()
    with forks.start(*serve, "--port", 0) as process:
        url = process.first_line().split()[0]
        (tmp_path / "policy").write_text(f"witness W {vkey} {url}\nquorum W\n")
        out = ("--out", tmp_path / "log", "--witness-policy", tmp_path / "policy")
        home = ("--home", published.folder / "home")
        succeeds("log", "publish", *home, *NAME, *signing(published.folder), *out)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with forks.start(*serve, "--port", 0) as process:
        url = process.first_line().split()[0]
        assert "serves it" in refusal(*serve, "--port", 0)
        (tmp_path / "policy").write_text(f"witness W {vkey} {url}\nquorum W\n")
        done = cmfl(
            *("log", "publish", "--home", published.folder / "older", *NAME),
            *(*signing(published.folder), "--out", tmp_path / "again"),
            *("--witness-policy", tmp_path / "policy"),
        )
        assert done.code == 1
        assert "has signed 3 entries, and the chain has 2 ended rounds" in done.err
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
