# make run: text from the embedded checkpoint. make test: every promise. Both build .venv first.

PYTHON ?= python3
BIN := .venv/bin
FUZZ ?= 10000
FAULTS ?= 200
AUDIT := .venv/audit
PROMPT ?= It is a truth universally acknowledged, that

.PHONY: run test fuzz faults audit check format lint types bench clean

run: .venv/installed
	$(BIN)/gpt2 generate -m austen -t 0.8 -k 40 "$(PROMPT)"

test: .venv/installed
	$(BIN)/python -m pytest

# so many damaged files of each kind, and draws by the hundred thousand; about half an hour
fuzz: .venv/installed
	FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz/test_fuzz.py tests/test_sampling_properties.py

# runs that are ended at random moments, so many of each kind; some minutes
faults: .venv/installed
	FAULTS=$(FAULTS) $(BIN)/python -m pytest tests/faults/test_killed.py

# the pinned packages against published vulnerabilities; one that cannot be asked about is a failure
audit: $(AUDIT)/installed
	$(AUDIT)/bin/pip-audit --strict --requirement constraints.txt --disable-pip --no-deps --progress-spinner off

check: lint types test

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/installed
	$(BIN)/mypy

bench: .venv/bench
	$(BIN)/python tests/benchmarks/bench.py
	$(BIN)/python tests/benchmarks/quality.py

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --no-build-isolation keeps the build backend among the pinned packages too
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	touch $@

.venv/bench: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	touch $@

# apart, so that it neither changes nor checks what the program runs with
$(AUDIT)/installed:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet "pip-audit>=2.7"
	touch $@
