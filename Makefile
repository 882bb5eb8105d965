# Everything runs in .venv, made from requirements.lock the first time it is needed.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin

.PHONY: help recipe test test-fast test-all lint lab models clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

recipe: .venv/.ready  ## the whole recipe, notebook 40, into runs/   (make recipe ARGS="-p seed 3")
	$(BIN)/python -m cookbook recipe $(ARGS)

test: .venv/.ready  ## fast tests, one learning test, every notebook's ci profile
	$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-fast: .venv/.ready  ## no notebooks, no training
	$(BIN)/python -m pytest -m "not slow and not learning and not notebooks" $(ARGS)

test-all: .venv/.ready  ## everything: fast profiles with bands and breaks, slow lanes
	$(BIN)/python -m pytest $(ARGS)

lint: .venv/.ready  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check cookbook tests benchmarks

lab: .venv/.ready  ## JupyterLab on the notebooks
	$(BIN)/jupyter lab notebooks

models: .venv/.ready  ## make the tiny base model again (hours)
	$(BIN)/python -m cookbook.tiny make $(ARGS)

clean:  ## remove .venv and runs/
	rm -rf .venv runs
