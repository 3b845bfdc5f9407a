SHELL := bash
.SHELLFLAGS := -o pipefail -c
# The first of these that runs and can make virtual environments. 3.11 is first, since PyPI has DGL for no later Python.
PYTHONS := python3.11 python3.12 python3.13 python3
FITS := -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1
PYTHON ?= $(shell for one in $(PYTHONS); do if $$one $(FITS); then echo $$one; break; fi; done)
# Another build of torch: make setup TORCH='torch==2.13.0 --index-url ...'
TORCH ?= $(shell grep '^torch==' constraints.txt)
# For the tests of Triton's kernels without a GPU. CUDA builds of torch bring the version that they need.
TRITON ?= triton==3.9.0
# Test processes side by side; many tests start ranks of their own, and wait for them. `make test` has 3 if none are given.
TEST_JOBS ?= 2
QUICK_JOBS = $(if $(filter file,$(origin TEST_JOBS)),3,$(TEST_JOBS))
VENV := .venv
BIN := $(VENV)/bin
# Files that say what has been installed: what users need, and what is installed when it is first needed.
USERS := $(VENV)/.for-users
TESTS := $(VENV)/.for-tests
LINT := $(VENV)/.for-lint
DOCS := $(VENV)/.for-docs
# Two calls at once wait for each other; the second finds everything done.
ALONE = +@mkdir -p .dev && { flock -n .dev/setup.lock true || echo "another make installs here: this one waits for it"; } \
	&& flock .dev/setup.lock $(MAKE) --no-print-directory
# What has torch for the GPU: PYTHON where it is given, else the virtual environment if there is one.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),python3),$(PYTHON))

# Containers often set it. Without bytecode, each process compiles what it imports, and pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup for-tests for-lint for-docs run test test-slow nightly coverage test-gpu test-emulated-gpu gpu-proof gpu-proof-rehearsal test-slurm test-core resolution wheel-smoke lint peers bench reproduce-small torture torture-slice ui docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: ## virtual environment with pinned versions and compiled kernels (done again only when they change)
	$(ALONE) $(USERS)

for-tests: setup
	$(ALONE) $(TESTS)

for-lint: setup
	$(ALONE) $(LINT)

for-docs: setup
	$(ALONE) $(DOCS)

INSTALL = $(BIN)/pip install --disable-pip-version-check --progress-bar off -c constraints.txt
# Of pip's lines: what is downloaded, with its size, and what is installed.
ONLY_NEW = | sed -uE '/^(Requirement already|Obtaining|  (Installing|Getting|Preparing|Created|Building|Checking|Stored|Attempting)|    )/d'

define ABOUT_TORCH
pip takes $(TORCH), then about 110 packages of 150 MB. An installed torch of this version stays.
PyPI has builds of torch for NVIDIA GPUs only: with CUDA, it downloads several gigabytes. For a machine without a GPU,
about 200 MB: make setup TORCH='$(TORCH) --index-url https://download.pytorch.org/whl/cpu'
endef

define NO_PYTHON
gnnexp needs Python 3.11, 3.12 or 3.13 with the module venv. None of $(PYTHONS) is one.
Install one, or name it: make setup PYTHON=/path/to/python3.12
endef

define WITHOUT_DGL
Without DGL, which PyPI has for Python 3.11 and earlier only: sampler=dgl, system=dgl_reference and dgl_full_graph,
dataset=dgl_builtin, dgl_graph and dgl_partitions. Their tests are skipped. The quickstart compares without it.
endef
export ABOUT_TORCH NO_PYTHON WITHOUT_DGL

# torch on its own and first: with a range, or beside other packages, pip fetches gigabytes of builds to compare.
$(USERS): pyproject.toml papers/pyproject.toml constraints.txt
	@test -x $(BIN)/python || { test -n "$(PYTHON)" && $(PYTHON) $(FITS); } || { echo "$$NO_PYTHON"; exit 1; }
	@test $(origin TORCH) != file || echo "$$ABOUT_TORCH"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check $(TORCH)
	$(INSTALL) -e '.[all]' -e papers $(ONLY_NEW)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then echo "$$WITHOUT_DGL"; fi
	$(BIN)/python -m gnnexp.kernels.warmup
	@touch $@

# The tests run several ranks side by side, with time limits: no test should wait for a compiler.
$(TESTS): $(USERS) tests/support/kernels.csv
	$(INSTALL) -e '.[test]' $(ONLY_NEW)
	if $(BIN)/python -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; then $(INSTALL) $(TRITON) $(ONLY_NEW); fi
	$(BIN)/python -m gnnexp.kernels.warmup --versions tests/support/kernels.csv
	@touch $@

$(LINT): $(USERS)
	$(INSTALL) -e '.[lint]' $(ONLY_NEW)
	@touch $@

$(DOCS): $(USERS)
	$(INSTALL) -e '.[all,docs]' $(ONLY_NEW)
	@touch $@

run: setup ## the quickstart sweep: DGL's training loop against gnnexp's, on real data, with two workers
	$(BIN)/gnnexp sweep quickstart

test: for-tests ## the test suite (about 8 minutes on 2 cores); prints the ten slowest tests
	GNNEXP_LISTED_KERNELS=1 $(BIN)/python -m pytest -n $(QUICK_JOBS) --dist worksteal --ignore tests/docs

# One thread for each rank: the tests run several ranks side by side.
# Triton interprets its kernels, which the emulated device then runs.
EMULATED := TRITON_INTERPRET=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m emulated_gpu -m pytest -n $(TEST_JOBS) --dist worksteal

# On emulated GPUs: no rank shares its GPU (NCCL), all ranks do (gloo), backward passes on the loop's thread. The first
# argument is one more variable, the second selects tests.
define ON_EMULATED_GPUS
	$(1) GNNEXP_EMULATED_GPUS=4 $(EMULATED) -m "gpu$(2)"
	$(1) GNNEXP_EMULATED_GPUS=1 $(EMULATED) -m "gpu$(2)"
	$(1) GNNEXP_EMULATED_GPUS=2 GNNEXP_EMULATED_THREADS=off $(EMULATED) -m "gpu$(2)"
endef

test-slow: for-tests for-docs ## longer checks: exactness for every pair of options, injected delays, whole systems, emulated GPUs
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m "slow and not gpu"
	$(call ON_EMULATED_GPUS,GNNEXP_EMULATED_AXIS=1, and not nightly)

SEED := $(or $(SEED),$(shell date +%s))
RANDOM_EXAMPLES := --hypothesis-profile nightly --hypothesis-seed $(SEED)

nightly: for-tests for-docs ## make test-slow, every combination, and all property tests, with random examples; prints the seed (SEED=17: these examples again)
	@echo "the examples of this run: make nightly SEED=$(SEED)"
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m "hypothesis and not slow and not nightly and not gpu and not slurm" $(RANDOM_EXAMPLES)
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m "(slow or nightly) and not gpu" $(RANDOM_EXAMPLES)
	$(call ON_EMULATED_GPUS,,)

coverage: for-tests ## which lines of gnnexp the tests of `make test` execute, those of ranks too (COVERED=tests/comm: only a part)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n $(TEST_JOBS) --dist worksteal $(COVERED); code=$$?; \
		$(BIN)/python -m coverage combine --quiet; $(BIN)/python -m coverage report --skip-covered --sort=cover; exit $$code

test-gpu: for-tests ## checks that need a CUDA device
	$(BIN)/python -m pytest -vv -m "gpu and not nightly"

test-emulated-gpu: for-tests ## the same checks on two emulated CUDA devices: no GPU is needed (docs/howto/emulated_gpu.md)
	GNNEXP_EMULATED_GPUS=2 $(EMULATED) -m "gpu and not slow and not nightly"

gpu-proof: ## what a GPU of this machine does: right results, rates, a hardware profile; goes on where it stopped (PROOF="--minutes 9")
	$(GPU_PYTHON) -m benchmarks.gpu.proof $(PROOF)

gpu-proof-rehearsal: for-tests ## the same on the emulated device, small: whether it would run
	GNNEXP_EMULATED_GPUS=2 TRITON_INTERPRET=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m emulated_gpu \
		-m benchmarks.gpu.proof --quick --again --stages all --out .gnnexp/gpu-proof-rehearsal $(PROOF)

test-slurm: for-tests ## a real SLURM of two virtual nodes on this machine (root; slurmctld slurmd slurm-client munge)
	$(BIN)/python -m pytest -m "slurm and not slow" tests/slurm

CORE_TESTS := tests/test_core_only.py tests/training/test_train.py tests/comm tests/feature_stores \
	tests/paradigms/test_data_parallel.py tests/paradigms/test_push_pull.py tests/paradigms/test_split_parallel.py \
	tests/samplers/test_fused.py tests/samplers/test_pipeline.py

# What a rank may do without: the launching process has it (docs/install.md).
NOT_CORE := dgl,mlflow,hydra,omegaconf,submitit,rich,matplotlib,sklearn,pymetis,pandas,yaml

test-core: for-tests ## the training core, with hydra, mlflow, dgl and everything else that a rank does without blocked from import
	GNNEXP_WITHOUT=$(NOT_CORE) PYTHONPATH=tests/support/without $(BIN)/python -m pytest -p no:hydra_pytest \
		-n $(TEST_JOBS) --dist worksteal $(CORE_TESTS)

resolution: setup ## what pip would install on a fresh machine, with PyPI's torch and with a CPU build, for each Python (installs nothing, but pip may fetch gigabytes of wheels)
	$(BIN)/python tests/wheel/resolution.py

wheel-smoke: for-tests ## the wheel, installed into a new environment and used outside of this checkout (minutes)
	$(BIN)/python tests/wheel/smoke.py

lint: for-lint ## style, types, the direction of imports, plain English, paths that point outside
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy --explicit-package-bases benchmarks/*.py
	$(BIN)/mypy --explicit-package-bases benchmarks/gpu
	MYPYPATH=benchmarks/peers $(BIN)/mypy --explicit-package-bases benchmarks/peers/*.py
	MYPYPATH=docs/hooks $(BIN)/mypy --explicit-package-bases docs/hooks/*.py
	$(BIN)/mypy --explicit-package-bases torture
	$(BIN)/lint-imports --no-cache
	$(BIN)/python benchmarks/english.py
	$(BIN)/python benchmarks/outside.py

peers: setup ## environments for PyG and GraphBolt in .dev/peers, which `make bench` measures against (PEERS=pyg: one of them)
	$(BIN)/python benchmarks/peers/environments.py $(PEERS) --torch "$(TORCH)"

bench: setup ## speed and memory against peers, into benchmarks/results/*.json
	$(BIN)/python -m benchmarks

reproduce-small: setup ## every published table and figure, scaled down, into docs/results (hours; it goes on where it was stopped)
	$(BIN)/python benchmarks/reproduce.py

torture: for-tests ## kills, frost, full disks, bad servers, malformed files for TORTURE_MINUTES (10); counts into docs/results
	$(BIN)/pip install -q -c constraints.txt atheris || echo "atheris cannot be had: no coverage-guided inputs"
	$(BIN)/python -m torture --counts docs/results/torture.json; code=$$?; $(BIN)/python -m torture.page && exit $$code

torture-slice: for-tests ## a minute of it, with fixed seeds and a random one
	$(BIN)/python -m torture --slice

ui: setup ## MLflow's dashboard on the runs made here
	$(BIN)/gnnexp ui

docs: for-docs for-tests ## tests of all pages, and the documentation site, into site/; read it with: python -m http.server -d site
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal tests/docs
	$(BIN)/python -m mkdocs build --strict --quiet

clean: ## remove the virtual environment and the artifact cache (runs and records stay)
	rm -rf $(VENV) .gnnexp
