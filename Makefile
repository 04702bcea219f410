# Every command a developer needs; `make` alone lists them.
PYTHON ?= python3
# numpy: a second thread gains nothing on matrices this small, and costs a busy machine seconds.
export OPENBLAS_NUM_THREADS := 1
ROUNDS ?= 100
SEED ?=
PORT ?= 8501

BIN := .venv/bin
READY := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help demo demo-cpu run setup check test drill engine-cpu test-engine test-browser screenshots bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## a run to look at, on simulated GPUs, and the dashboard on it: PORT=8501
	@$(BIN)/python -m backend demo --port $(PORT)

demo-cpu: $(READY) engine-cpu ## the same on the real SGLang, on a CPU
	@$(BIN)/python -m backend demo --cpu --port $(PORT)

run: $(READY) ## the dashboard, at http://127.0.0.1:8501 (PORT=8501) or the next free port
	@$(BIN)/python -m backend dashboard --port $(PORT)

setup: $(READY) ## the environment in .venv, from requirements.txt

check: $(READY) ## style, types and which part may import which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: $(READY) ## the quick tests
	$(BIN)/pytest -m "not drill and not real_engine and not browser" -n 3 --dist loadfile

drill: $(READY) ## kill and fault drills with real processes: ROUNDS=100, SEED=... repeats one
	ROUNDS=$(ROUNDS) SEED=$(SEED) $(BIN)/pytest -m "drill and not real_engine" -n 2 --dist loadfile

engine-cpu: ## the real SGLang on a CPU with a tiny model, in .engine-cpu (1.6 GB, about 3 minutes)
	@$(PYTHON) -m backend.engine_cpu

test-engine: $(READY) ## the tests against the real SGLang (after `make engine-cpu`)
	$(BIN)/pytest -m real_engine

test-browser: $(READY) ## the dashboard in a real Chromium (apt-get install chromium)
	$(BIN)/pytest -m browser

screenshots: $(READY) ## pictures of every page, in docs/screenshots
	@$(BIN)/python -m tests.browser.screenshots

bench: $(READY) ## what Headway reaches on this machine
	$(BIN)/python -m tests.bench

# Written last: an interrupted installation is repeated.
$(READY): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11. Remedy: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "this Python cannot make environments. Remedy: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check --no-input --quiet -r requirements.txt
	@touch $@
