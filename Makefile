# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Each makes the environment it needs in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test check bench clean

demo: $(VENV)/.demo
	$(BIN)/python examples/flights.py --out out

test: $(VENV)/.test check
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.demo
	$(BIN)/python benchmarks/one_pass.py
	$(BIN)/python benchmarks/passes.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extra packages; pip runs again when pyproject.toml changes.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(PIP) install -e ".[$*]"
	@touch $@

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
