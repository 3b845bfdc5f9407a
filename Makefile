PYTHON ?= python3.11
# Another build of torch: make setup TORCH='torch==2.13.0 --index-url ...'
TORCH ?= $(shell grep '^torch==' constraints.txt)
# For the tests of Triton's kernels without a GPU. CUDA builds of torch bring the version that they need.
TRITON ?= triton==3.9.0
# Test processes side by side; many tests start ranks of their own, and wait for them.
TEST_JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-by-make
# What has torch for the GPU: PYTHON where it is given, else the virtual environment if there is one.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),python3),$(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow nightly coverage test-gpu test-emulated-gpu gpu-proof gpu-proof-rehearsal test-slurm test-core resolution wheel-smoke lint peers bench reproduce-small torture torture-slice ui docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(STAMP) ## virtual environment with pinned versions and compiled kernels (done again only when they change)

# torch on its own and first: with a range, or beside other packages, pip fetches gigabytes of builds to compare.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q $(TORCH)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -c 'import sys, torch; sys.exit(torch.version.cuda is not None)' && $(BIN)/pip install -q $(TRITON) || test $$? = 1
	@if test -f gnnexp/kernels/warmup.py; then echo "compiling kernels"; $(BIN)/python -m gnnexp.kernels.warmup; fi
	@touch $@

run: setup ## the quickstart sweep: DGL's training loop against gnnexp's, on real data, with two workers
	$(BIN)/gnnexp sweep quickstart

test: setup ## the test suite, a few minutes
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal

# One thread for each rank: the tests run several ranks side by side.
# Triton interprets its kernels, which the emulated device then runs.
EMULATED := TRITON_INTERPRET=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m gnnexp.testing.emulated -m pytest -n $(TEST_JOBS) --dist worksteal

# On emulated GPUs: no rank shares its GPU (NCCL), all ranks do (gloo), backward passes on the loop's thread. The second
# argument selects tests of the last two.
define ON_EMULATED_GPUS
	GNNEXP_EMULATED_GPUS=4 $(EMULATED) -m "gpu$(1)"
	GNNEXP_EMULATED_GPUS=1 $(EMULATED) -m "gpu$(2)"
	GNNEXP_EMULATED_GPUS=2 GNNEXP_EMULATED_THREADS=off $(EMULATED) -m "gpu$(2)"
endef

test-slow: setup ## longer checks: exactness for every pair of options, injected delays, whole systems, emulated GPUs
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m "slow and not gpu"
	$(call ON_EMULATED_GPUS, and not nightly, and not slow and not nightly)

SEED := $(or $(SEED),$(shell date +%s))
RANDOM_EXAMPLES := --hypothesis-profile nightly --hypothesis-seed $(SEED)

nightly: setup ## make test-slow, every combination, and all property tests, with random examples; prints the seed (SEED=17: these examples again)
	@echo "the examples of this run: make nightly SEED=$(SEED)"
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m "hypothesis and not slow and not nightly and not gpu and not slurm" $(RANDOM_EXAMPLES)
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal -m "(slow or nightly) and not gpu" $(RANDOM_EXAMPLES)
	$(call ON_EMULATED_GPUS,,)

coverage: setup ## which lines of gnnexp the tests of `make test` execute, those of ranks too (COVERED=tests/comm: only a part)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n $(TEST_JOBS) --dist worksteal $(COVERED); code=$$?; \
		$(BIN)/python -m coverage combine --quiet; $(BIN)/python -m coverage report --skip-covered --sort=cover; exit $$code

test-gpu: setup ## checks that need a CUDA device
	$(BIN)/python -m pytest -vv -m "gpu and not nightly"

test-emulated-gpu: setup ## the same checks on two emulated CUDA devices: no GPU is needed (docs/howto/emulated_gpu.md)
	GNNEXP_EMULATED_GPUS=2 $(EMULATED) -m "gpu and not slow and not nightly"

gpu-proof: ## what a GPU of this machine does: right results, rates, a hardware profile; goes on where it stopped (PROOF="--minutes 9")
	$(GPU_PYTHON) -m benchmarks.gpu.proof $(PROOF)

gpu-proof-rehearsal: setup ## the same on the emulated device, small: whether it would run
	GNNEXP_EMULATED_GPUS=2 TRITON_INTERPRET=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m gnnexp.testing.emulated \
		-m benchmarks.gpu.proof --quick --again --stages all --out .gnnexp/gpu-proof-rehearsal $(PROOF)

test-slurm: setup ## a real SLURM of two virtual nodes on this machine (root; slurmctld slurmd slurm-client munge)
	$(BIN)/python -m pytest -m "slurm and not slow" tests/slurm

CORE_TESTS := tests/test_core_only.py tests/training/test_train.py tests/comm tests/feature_stores \
	tests/paradigms/test_data_parallel.py tests/paradigms/test_push_pull.py tests/paradigms/test_split_parallel.py \
	tests/samplers/test_fused.py tests/samplers/test_pipeline.py

# What a rank may do without: the launching process has it (docs/install.md).
NOT_CORE := dgl,mlflow,hydra,omegaconf,submitit,rich,matplotlib,sklearn,pymetis,pandas,yaml

test-core: setup ## the training core, with hydra, mlflow, dgl and everything else that a rank does without blocked from import
	GNNEXP_WITHOUT=$(NOT_CORE) PYTHONPATH=tests/support/without $(BIN)/python -m pytest -p no:hydra_pytest \
		-n $(TEST_JOBS) --dist worksteal $(CORE_TESTS)

resolution: setup ## what pip would install on a fresh machine, with PyPI's torch and with a CPU build, for each Python (installs nothing, but pip may fetch gigabytes of wheels)
	$(BIN)/python tests/wheel/resolution.py

wheel-smoke: setup ## the wheel, installed into a new environment and used outside of this checkout (minutes)
	$(BIN)/python tests/wheel/smoke.py

lint: setup ## style, types, the direction of imports, plain English
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy --explicit-package-bases benchmarks/*.py
	$(BIN)/mypy --explicit-package-bases benchmarks/gpu
	MYPYPATH=benchmarks/peers $(BIN)/mypy --explicit-package-bases benchmarks/peers/*.py
	MYPYPATH=docs/hooks $(BIN)/mypy --explicit-package-bases docs/hooks/*.py
	$(BIN)/mypy --explicit-package-bases torture
	$(BIN)/lint-imports --no-cache
	$(BIN)/python benchmarks/english.py

peers: setup ## environments for PyG and GraphBolt in .dev/peers, which `make bench` measures against (PEERS=pyg: one of them)
	$(BIN)/python benchmarks/peers/environments.py $(PEERS) --torch "$(TORCH)"

bench: setup ## speed and memory against peers, into benchmarks/results/*.json
	$(BIN)/python -m benchmarks

reproduce-small: setup ## every published table and figure, scaled down, into docs/results (hours; it goes on where it was stopped)
	$(BIN)/python benchmarks/reproduce.py

torture: setup ## kills, frost, full disks, bad servers, malformed files for TORTURE_MINUTES (10); counts into docs/results
	$(BIN)/pip install -q -c constraints.txt atheris || echo "atheris cannot be had: no coverage-guided inputs"
	$(BIN)/python -m torture --counts docs/results/torture.json; code=$$?; $(BIN)/python -m torture.page && exit $$code

torture-slice: setup ## a minute of it, with fixed seeds and a random one
	$(BIN)/python -m torture --slice

ui: setup ## MLflow's dashboard on the runs made here
	$(BIN)/gnnexp ui

docs: setup ## the documentation site, into site/; read it with: python -m http.server -d site
	$(BIN)/python -m mkdocs build --strict --quiet

clean: ## remove the virtual environment and the artifact cache (runs and records stay)
	rm -rf $(VENV) .gnnexp
