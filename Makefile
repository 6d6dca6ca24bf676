# `make demo` does the main job, `make test` checks everything; both need Python 3.11, make and git.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt

# One for each core, up to 1.5 GB each.
TEST_PROCESSES ?= auto

.PHONY: demo docs figures screenshots network nodes test quick slow faults mutants deep fuzz coverage lint bench bench-peers flower gpu serve matrix floors wheel beside crate clean

demo: $(VENV)/.clients
	$(BIN)/cmfl demo --home demo-home

# Ten rounds by twelve worker processes on a served chain, one malicious, one killed in each round.
# CHAIN=anvil with CMFL_ANVIL=path/to/anvil for the other chain.
CHAIN ?= embedded
network: $(VENV)/.clients
	rm -rf network-home
	$(BIN)/cmfl network --home network-home --chain $(CHAIN) --workers 12 --rounds 10

# Tests, whole runs and measurements on this machine's GPU, offline: no step begins after nine and a half
# minutes. Needs a CUDA build of torch in the environment of GPU_PYTHON. Writes docs/measured/gpu.json.
GPU_PYTHON ?= $(BIN)/python
gpu:
	$(GPU_PYTHON) -m benchmarks.gpu

serve: $(VENV)/.clients
	$(BIN)/cmfl serve --home demo-home

test: lint
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --maxprocesses 8

# The core, after every change: protocol, actors, history, and the contract on revm. Two minutes on two cores.
quick: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n 2 \
	  tests/protocol tests/actors tests/history tests/contracts -m "not slow and not network"

# The tests with real processes on a slow machine: each line of .ci/slow_tests has a share of one core, in per cent,
# and six run side by side. Needs root and a writable cgroup of the processor.
SHARE ?= 15
slow: $(VENV)/.dev
	xargs -P 6 -L 1 sh -c 'log=$$(mktemp); \
	  .ci/slow.sh $(SHARE) $(BIN)/python -m pytest -q --no-header --tb=short -p no:cacheprovider "$$@" >"$$log" 2>&1; \
	  code=$$?; printf "%s\n" "$$*" | cat - "$$log"; rm "$$log"; exit $$code' slow <.ci/slow_tests

# The tests that draw faults or values by chance, each of them many more times than `make test` does; then a
# federation of processes in which every fault befalls every role. That part goes on where it was ended.
faults: $(VENV)/.dev
	CMFL_FAULTS=1 $(BIN)/python -m pytest -n 2 \
	  $$(grep --recursive --files-with-matches --include='test_*.py' -e '^from tests.faults' -e '^from hypothesis' tests)
	$(BIN)/python -m tests.federation --resume

# Changes of one place in the contract: some test has to fail for each.
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutation --page docs/project/mutants.md

# A million steps of the contract beside its specification.
deep: $(VENV)/.dev
	$(BIN)/python -m tests.contracts.deep

# Proofs and bundles with a hundred thousand faults in them: none may be accepted.
fuzz: $(VENV)/.dev
	CMFL_FUZZ=1 $(BIN)/python -m pytest -n 2 tests/audit/proofs

# The pages of docs/ as a site, in build/site.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of the README and the pages, from a run played now; needs Chromium.
screenshots: $(VENV)/.dev
	$(BIN)/python docs/screenshots.py

# Every line and branch of the protocol and of the audit's steps is run by their own tests.
coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 tests/protocol tests/audit --cov --cov-report=
	$(BIN)/coverage report --skip-covered --fail-under=100

# The counts of .ci/prose.json may only fall: `python .ci/prose.py --write` lowers them.
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy .ci/prose.py
	$(BIN)/lint-imports
	$(BIN)/python .ci/prose.py

# Every figure of README and docs: the commands that write result files, then the pages. Needs a quiet machine;
# CYCLES is the number of turns of each contender of `benchmarks.rounds`. The rows of the experiments stay: `cmfl experiment run` plays them. Without a card gpu.json stays.
# `make faults` and `make mutants` write their own tables.
CYCLES ?= 1
figures: $(VENV)/.dev bench-peers
	$(BIN)/python -m benchmarks.first_demo
	$(BIN)/python -m benchmarks.ledger
	$(BIN)/python -m benchmarks.ledger_counts
	$(BIN)/python -m benchmarks.committee_faults
	$(BIN)/python -m benchmarks.sender_choice
	$(BIN)/python -m benchmarks.captured_committees
	$(BIN)/python -m benchmarks.scoring
	$(BIN)/python -m tests.clients.aggregators.numpy_forms
	$(BIN)/python -m benchmarks.rounds --cycles $(CYCLES)
	$(BIN)/python -m benchmarks.history --service
	-$(MAKE) gpu
	$(BIN)/python -m benchmarks.paper report
	$(BIN)/python -m benchmarks.figures

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.history
	$(BIN)/python -m benchmarks.scoring
	$(BIN)/python -m benchmarks.rounds

# The peers of `benchmarks.rounds`, each in an environment of its own; torch goes first and alone.
bench-peers: .bench/pfl/.installed .bench/flower/.installed

.bench/%/.installed: benchmarks/peers/requirements-%.txt
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python -m pip install --disable-pip-version-check --quiet torch==2.13.0
	.bench/$*/bin/python -m pip install --disable-pip-version-check --quiet --requirement $<
	touch $@

# One run with faults, bans and a restart on each development node, with equal heads in the end; NODES names some of
# the kinds. Nodes come from npm; one that is missing is skipped with a reason.
nodes: $(VENV)/.dev
	-.ci/nodes.sh anvil hardhat2 hardhat3
	$(BIN)/python -m tests.chain.nodes $(NODES)

# Tests with Flower itself, in an environment of its own, whose pins differ from ours: by hand, 20 minutes.
flower: .flower/.installed
	.flower/bin/python -m pytest tests/flower

.flower/.installed: tests/flower/requirements.txt benchmarks/peers/requirements-flower.txt pyproject.toml
	$(PYTHON) -m venv .flower
	.flower/bin/python -m pip install --disable-pip-version-check --quiet torch==2.13.0
	.flower/bin/python -m pip install --disable-pip-version-check --quiet --requirement $<
	.flower/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .
	touch $@

# The core's tests under each of these Pythons that this machine has; see tests/packaging/matrix.py.
MATRIX ?= 3.11 3.12 3.13
matrix:
	$(PYTHON) -m tests.packaging.matrix $(MATRIX)

# The same with the lowest versions that the metadata admits.
floors:
	$(PYTHON) -m tests.packaging.matrix --floors 3.11

# The wheel in a fresh environment: demo, run, audit, serve, experiment and network, with minutes.
wheel:
	$(PYTHON) -m tests.packaging.wheel

# The files of a release from the commit with its tag, signed by KEY, a private key in PEM: see CONTRIBUTING.md.
.PHONY: release
release: $(VENV)/.dev
	$(BIN)/python -m tests.packaging.release dist --key $(KEY)

# The core beside other projects' packages in one environment: their command lines and ours answer.
beside:
	$(PYTHON) -m tests.packaging.beside

# The RO-Crate of a small run by roc-validator, in an environment of its own. Where w3id.org is not reached,
# CRATE_CONTEXT is a copy of RO-Crate's JSON-LD context: lib/context.json in npm's package ro-crate.
crate: $(VENV)/.clients .bench/rocrate/.installed
	rm -rf build/crate build/crate-home
	mkdir -p build
	$(BIN)/cmfl run --preset smoke --home build/crate-home
	$(BIN)/cmfl export crate --home build/crate-home --out build/crate
	.bench/rocrate/bin/python tests/packaging/validate_crate.py build/crate $(CRATE_CONTEXT)

.bench/rocrate/.installed: tests/packaging/requirements-rocrate.txt
	$(PYTHON) -m venv .bench/rocrate
	.bench/rocrate/bin/python -m pip install --disable-pip-version-check --quiet --requirement $<
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch goes first and alone, so that no other package chooses its build.
$(VENV)/.clients: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[clients,fast,data,plots,api]"
	touch $@

$(VENV)/.dev: $(VENV)/.clients
	$(PIP) --editable ".[all,dev]"
	touch $@

clean:
	rm -rf $(VENV) .flower demo-home network-home build *.egg-info
