# Every target does its own set-up; a second run finds it done. Nothing is installed outside .venv and the user's cache folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Most tests wait for leases and group timeouts: more of them at once than there are cores.
JOBS ?= 4
CHAOS_SECONDS ?= 60
BACKLOG ?= 200000
PIP := $(BIN)/python -m pip --disable-pip-version-check
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --quiet
LOCK := $(COMPILE) pyproject.toml --extra stack --group build

.PHONY: help demo test check chaos bench up down image lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/.ready ## two workers, thousands of duplicates, one kill -9: watch nothing happen twice (ARGS=--json, ARGS=--keep)
	@$(BIN)/oncebox demo $(ARGS)

test: $(VENV)/.ready-dev ## all tests, on real Kafka, Postgres and Redis (ARGS="-k word")
	@$(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal $(ARGS)

check: $(VENV)/.ready-dev ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

chaos: $(VENV)/.ready-dev ## random faults for a while, and a long replay killed twice (CHAOS_SECONDS=60, BACKLOG=200000, ONCEBOX_TEST_SEED=7)
	@ONCEBOX_TEST_CHAOS_SECONDS=$(CHAOS_SECONDS) $(BIN)/python -m pytest tests/engine/test_chaos.py -s --timeout 0 $(ARGS)
	@ONCEBOX_TEST_BACKLOG=$(BACKLOG) $(BIN)/python -m pytest tests/backlog/test_interrupted.py -s --timeout 0 $(ARGS)

bench: $(VENV)/.ready-bench ## oncebox beside what people would write instead, in one run (QUICK=1, ARGS="--only a,d"); report in bench-report/
	@$(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(ARGS)

up: $(VENV)/.ready ## start the local stack and leave it running
	@$(BIN)/oncebox stack up $(ARGS)

down: $(VENV)/.ready ## stop the local stack
	@$(BIN)/oncebox stack down $(ARGS)

image: ## build the image without Docker and run it as its user, on a stand-in for its base (Debian, root, buildah)
	@deploy/image/rehearse

lock: ## pin the dependencies anew (needs uv on PATH)
	env -u PIP_FIND_LINKS $(LOCK) --group dev -o requirements-dev.lock
	env -u PIP_FIND_LINKS $(LOCK) -c requirements-dev.lock -o requirements.lock
	env -u PIP_FIND_LINKS $(COMPILE) pyproject.toml -c requirements-dev.lock -o deploy/image/runtime.lock
	env -u PIP_FIND_LINKS $(COMPILE) --group build -c requirements-dev.lock -o deploy/image/build.lock
	env -u PIP_FIND_LINKS $(COMPILE) --group bench -c requirements-dev.lock -o requirements-bench.lock

clean: ## remove the virtual environment and caches of this folder
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis bench-report dist build

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo 'oncebox needs Python 3.11 or newer: install it, or name it: make PYTHON=/path/to/python3' >&2; exit 78; }
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo 'python cannot create virtual environments here: install its venv package (Debian: python3-venv)' >&2; exit 78; }
	@touch $@

$(VENV)/.ready: requirements.lock pyproject.toml $(VENV)/.created
	@echo 'installing the pinned packages (once)'
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(VENV)/.ready-dev: requirements-dev.lock $(VENV)/.ready
	@echo 'installing the pinned packages for tests and checks (once)'
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

$(VENV)/.ready-bench: requirements-bench.lock $(VENV)/.ready-dev
	@echo 'installing the pinned packages of the benchmark (once)'
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements-bench.lock
	@touch $@
