"""What a worker loads: its clients' samples, held against run document and registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.configuration.loading import load
from clients.configuration.run_configuration import configuration_from_document
from clients.datasets.own_samples import own_parts
from clients.runs.population import populate, run_document, with_training_path
from ledger.protocol.documents.run import RunDocument, decode_run, encode_run
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId, RegisteredClient
from tests.clients.onboarding.owners import agreed, document_of, registry_of, samples_file

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hugging_face"


@pytest.fixture(scope="module")
def document() -> RunDocument:
    return decode_run(encode_run(document_of(registry_of())))


@pytest.fixture(scope="module")
def simulated() -> RunDocument:
    configuration = load("robust", settings=("malice.members={}",))
    population = populate(configuration)
    return run_document(with_training_path(configuration, population), population)


def rows(document: RunDocument, client: int) -> int:
    return document.registry[client].samples


def test_the_document_tells_the_configuration_whole(simulated: RunDocument) -> None:
    told = configuration_from_document(simulated)
    assert encode_run(run_document(told, populate(told))) == encode_run(simulated)
    assert told.training.path == "lockstep"


def test_part_i_is_what_the_simulation_has_at_index_i(simulated: RunDocument) -> None:
    told = configuration_from_document(simulated)
    clean = populate(told).clean
    for client in (0, len(simulated.registry) - 1):
        part = own_parts(told, simulated, (ClientId(client),)).train[client]
        assert np.array_equal(part.x, clean.train[client].x)
        assert np.array_equal(part.y, clean.train[client].y)
    with pytest.raises(ConfigurationError, match="client 99999: the registry has clients 0"):
        own_parts(told, simulated, (ClientId(99999),))
    with pytest.raises(ConfigurationError, match="there is no client"):
        own_parts(told, simulated, ())


def test_other_data_than_those_of_the_run_are_refused(simulated: RunDocument) -> None:
    told = configuration_from_document(simulated)
    other = replace(simulated, experiment={**simulated.experiment, "data": {"name": "digits"}})
    with pytest.raises(ConfigurationError, match="not those that the run was deployed with"):
        own_parts(told, other, (ClientId(0),))
    first, *rest = simulated.registry
    more = replace(simulated, registry=(RegisteredClient(first.address, 9999), *rest))
    with pytest.raises(ConfigurationError, match=r"client 0 has \d+ .*, and is registered with 99"):
        own_parts(told, more, (ClientId(0),))


def test_one_client_reads_one_file_and_several_a_folder(document: Any, tmp_path: Path) -> None:
    told = configuration_from_document(document)
    mine = samples_file(tmp_path / "mine.npz", rows(document, 2))
    found = own_parts(told, document, (ClientId(2),), mine)
    assert [len(part.y) for part in found.train] == [0, 0, rows(document, 2), 0, 0, 0]
    # What all clients have decides how they are trained together.
    assert found.sample_counts == tuple(client.samples for client in document.registry)
    assert len(found.test.y) == 2
    with pytest.raises(ConfigurationError, match="2 clients have a file each: give their folder"):
        own_parts(told, document, (ClientId(1), ClientId(2)), mine)
    folder = tmp_path / "all"
    folder.mkdir()
    for client in (1, 2):
        name = f"0x{document.registry[client].address.hex()}.npz"
        samples_file(folder / name, rows(document, client))
    found = own_parts(told, document, (ClientId(1), ClientId(2)), folder)
    sizes = [len(part.y) for part in found.train]
    assert sizes == [0, rows(document, 1), rows(document, 2), 0, 0, 0]
    assert len(found.test.y) == 4
    with pytest.raises(ConfigurationError, match=r"has no 0x\w+\.npz or \.safetensors of client 0"):
        own_parts(told, document, (ClientId(0),), folder)


def test_own_samples_must_be_there_and_as_many_as_registered(document: Any, tmp_path: Path) -> None:
    told = configuration_from_document(document)
    with pytest.raises(ConfigurationError, match="give the file of your own samples with --data"):
        own_parts(told, document, (ClientId(0),))
    short = samples_file(tmp_path / "short.npz", rows(document, 0) - 1)
    with pytest.raises(ConfigurationError, match="training samples here, and is registered with"):
        own_parts(told, document, (ClientId(0),), short)


def test_no_document_names_code_or_a_local_file(simulated: RunDocument) -> None:
    def told_by(**changed: object) -> None:
        configuration_from_document(
            replace(simulated, experiment={**simulated.experiment, **changed})
        )

    with pytest.raises(ConfigurationError, match=r"'os:system', which is code of its owner's"):
        told_by(model={"name": "os:system", "options": {}})
    with pytest.raises(ConfigurationError, match=r"data\.options\.glove: must be given"):
        told_by(data={"name": "sent140", "options": {"glove": "/etc/passwd"}, "partition": {}})
    with pytest.raises(ConfigurationError, match="data is no table"):
        told_by(data=[1])
    with pytest.raises(ConfigurationError, match="seed"):
        told_by(seed="one")
    with pytest.raises(ConfigurationError, match="the run document says that; of this machine"):
        configuration_from_document(simulated, settings=("training.learning_rate=9",))
    told = configuration_from_document(
        simulated, settings=("machine.workers=2", "evaluation.every=3")
    )
    assert (told.machine.workers, told.evaluation.every) == (2, 3)


def test_files_for_all_lie_where_this_machine_has_them(tmp_path: Path) -> None:
    configuration = load(
        "smoke", settings=("data.name=femnist", f'data.path="{FIXTURES / "femnist"}"')
    ).model_copy(update={"protocol": agreed("protocol.clients=6").protocol})
    # Two writers only: what is looked at is which files count as the run's.
    document = document_of(registry_of())
    told = configuration.recorded()["data"]
    assert "path" in told
    with pytest.raises(ConfigurationError, match="not those that the run was deployed with"):
        own_parts(configuration, document, (ClientId(0),), FIXTURES / "femnist")
    with pytest.raises(ConfigurationError, match="no such file"):
        own_parts(configuration, document, (ClientId(0),), tmp_path / "gone")
