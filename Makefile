# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Each makes the environment it needs in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# Tests and benchmarks run on the CPU. Named first and alone, pip takes the build for the CPU where
# there is one, and no other package pulls in another.
TORCH ?= torch==2.13.0

.PHONY: demo demo-lm docs test check bench bench-quick theory clean

demo: $(VENV)/.demo
	$(BIN)/python examples/flights.py --out out

# Fetches a small corpus of packages, trains two rules for about three minutes, draws what happened.
demo-lm: $(VENV)/.lm $(VENV)/.plot
	$(BIN)/counterpoise lm prepare configs/demo-lm.toml
	$(BIN)/counterpoise lm compare configs/demo-lm.toml --jobs 2

# The site, in out/site: pages, reference, and a gallery that is run; warnings are errors.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -d out/doctrees docs out/site
	@echo "open out/site/index.html"

test: $(VENV)/.test $(VENV)/.docs check
	$(BIN)/python -m pytest -n auto --dist loadgroup

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Everything measured in docs but theory.md; two hours on two cores. `bench-quick`: minutes.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/one_pass.py
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/dask_workers.py
	$(BIN)/python benchmarks/larger_than_memory.py --gb 20
	$(BIN)/python benchmarks/choosing.py
	$(BIN)/python benchmarks/interval_coverage.py
	$(BIN)/python benchmarks/mixing.py

bench-quick: $(VENV)/.bench
	$(BIN)/python benchmarks/one_pass.py
	$(BIN)/python benchmarks/run.py --quick
	$(BIN)/python benchmarks/scaling.py --quick

# Everything in docs/theory.md; about 20 minutes on two slow cores.
theory: $(VENV)/.experiments
	$(BIN)/python experiments/theory/run.py --out out/theory

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.test $(VENV)/.docs $(VENV)/.bench $(VENV)/.lm: $(VENV)/.torch

$(VENV)/.torch: | $(BIN)/python
	$(PIP) install "$(TORCH)"
	@touch $@

# One stamp per set of extra packages; pip runs again when pyproject.toml changes.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(PIP) install -e ".[$*]"
	@touch $@

clean:
	rm -rf $(VENV) .venv-bench out build dist docs/auto_gallery docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
