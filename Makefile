# Two commands do everything on a machine that has Python 3.10+, pip and make:
#   make demo    train a small classifier, fit BAL, compare, write runs/demo/report.html
#   make test    ruff, mypy --strict and pytest
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/pip install --quiet

.PHONY: demo test format bench clean

demo: $(VENV)/core.stamp
	$(BIN)/bal demo

test: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/metrics.py

$(VENV)/core.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing bal and torch into $(VENV); about a minute the first time"
	$(PIP) -e .
	touch $@

$(VENV)/dev.stamp: $(VENV)/core.stamp
	$(PIP) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .pytest_cache .ruff_cache
