# Everything here works on a machine with only Python >= 3.11, make and git: uv and all else are fetched.
SHELL := /bin/sh
PYTHON ?= python3
BOOT := .venv-uv
UV := $(BOOT)/bin/uv
RUN := $(UV) run --frozen --no-sync
STAMP := .venv/.burnish-synced
export OMP_NUM_THREADS ?= 1

.PHONY: help demo up test unit check generate drill bench clean
help:
	@echo "make demo      the whole loop once, on the built-in example (ARGS='--dataset DIR' for your own data)"
	@echo "make demo ARGS=qa    the Q&A library once: files dropped, questions asked over MCP"
	@echo "make up        everything on this machine, until Ctrl-C"
	@echo "make test      checks and every test, on real Postgres and NATS"
	@echo "make check     ruff, mypy, import-linter only"
	@echo "make drill     the long fault drills"
	@echo "make bench     every benchmark, one JSON object each"
	@echo "make generate  schemas, AsyncAPI, event catalogue, NATS configuration"

$(UV):
	$(PYTHON) -c 'import sys; sys.exit("burnish needs Python 3.11 or newer, this is %d.%d: set PYTHON=" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(BOOT)
	$(BOOT)/bin/python -m pip install --quiet --disable-pip-version-check uv

$(STAMP): $(UV) pyproject.toml sdk/pyproject.toml uv.lock
	# uv brings its own certificates; behind a proxy that signs anew only those of the system are right.
	$(UV) sync --frozen --quiet || $(UV) sync --frozen --quiet --system-certs
	@touch $(STAMP)

demo: $(STAMP)
	$(RUN) burnish demo $(ARGS)

up: $(STAMP)
	$(RUN) burnish up $(ARGS)

check: $(STAMP)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports

unit: $(STAMP)
	$(RUN) pytest -n 2 --dist loadfile $(ARGS)

test: check unit

generate: $(STAMP)
	$(RUN) python -m libs.contracts.generate
	$(RUN) burnish topology --write deploy/nats/accounts.conf

drill: $(STAMP)
	$(RUN) pytest -m drill -p no:randomly -o addopts= --timeout 3600 -s tests/faults services/qa_ingest $(ARGS)

BENCHES := $(filter-out __init__ machine,$(basename $(notdir $(wildcard bench/*.py))))
bench: $(STAMP)
	@for name in $(BENCHES); do $(RUN) python -m bench.$$name --json || exit 1; done

clean:
	rm -rf .venv $(BOOT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
