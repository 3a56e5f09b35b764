# Everything runs in .venv, which the first target sets up.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
READY := $(VENV)/.ready
EXAMPLE := examples/overload-incident
DEMO := runs/demo

.PHONY: help demo test test-full check bench docs setup clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Set up .venv, the package and the compiled engine

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing ..."
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(BIN)/replay doctor --warm
	@touch $@

demo: $(READY) ## Replay a recorded overload incident under every policy (a minute)
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@echo "== the log that a person has"
	$(BIN)/replay ingest $(EXAMPLE)/cancel.attempts.jsonl -o $(DEMO)/trace.parquet
	@echo; echo "== the engine's step times, from its own step log"
	$(BIN)/replay calibrate $(EXAMPLE)/calibration.steps.jsonl.gz --speed-of $(EXAMPLE)/cancel.steps.jsonl.gz -o $(DEMO)/profile.json
	@echo; echo "== every policy, five times"
	$(BIN)/replay run $(DEMO)/trace.parquet --config $(EXAMPLE)/experiment.yaml --profile $(DEMO)/profile.json -o $(DEMO)/run

test: $(READY) ## Run the tests
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

test-full: $(READY) ## Run all tests, the slow proofs included
	$(BIN)/pytest -n 2 --dist loadfile --hypothesis-profile=default

check: $(READY) ## Lint, types, imports, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_docs.py --check

bench: $(READY) ## Speed of the engine and of ingest per CPU second, peak memory
	$(BIN)/python scripts/bench_engine.py
	@echo
	$(BIN)/python scripts/bench_ingest.py

docs: $(READY) ## Write the generated pages of docs/
	$(BIN)/python scripts/generate_docs.py

clean: ## Remove what the targets made
	rm -rf $(VENV) runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
