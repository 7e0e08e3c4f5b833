# The project's commands. `make lab` and `make test` need Python 3.11+, make, Java 17+ and PyPI, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest

.PHONY: help lab test check format bench profile soak lock clean java-hint
.DEFAULT_GOAL := help

help:  ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp is newer than both files after an install, so a second `make` installs nothing.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rafka-lab needs Python 3.11 or newer; '$(PYTHON)' is `$(PYTHON) --version 2>&1`. Install one and run: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Jupyter itself listens on loopback only and asks for a token; in a container people often are root.
lab: $(READY) java-hint  ## set up and open JupyterLab on notebooks/, at 00_start_here
	$(BIN)/jupyter lab --notebook-dir=notebooks --LabApp.default_url=/lab/tree/00_start_here.ipynb $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

test: $(READY)  ## set up and run the whole test suite
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTEST) -m 'not soak' $(ARGS)

check: $(READY)  ## formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## the benchmarks in their quick form, beside Apache Kafka where Java and Maven are there
	$(BIN)/rafka-lab bench --quick --peer auto $(ARGS)

profile: $(READY)  ## flame graphs of gateway and broker under each workload, in profiles/
	$(BIN)/rafka-lab profile --out profiles $(ARGS)

soak: $(READY)  ## the long randomised runs
	HYPOTHESIS_PROFILE=soak $(PYTEST) -m soak --timeout 7200 $(ARGS)

lock:  ## pin the newest versions that pyproject.toml allows into constraints.txt
	$(PYTHON) .ci/lock.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Only the Spark part needs Java, so its absence is a hint and not an error.
java-hint:
	@$(BIN)/python -c 'from rafka_lab.java import hint; hint()'
