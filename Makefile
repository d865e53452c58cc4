# Everything below works on a machine that has Python >= 3.11, make and a C compiler.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test lint types types-package types-tests imports unit test-slow test-browser faults torture soak docs docs-serve format dist release-check clean

# A demonstration in a minute, in an environment of its own that has torch and little else.
run: .venv-run/installed
	OMP_WAIT_POLICY=PASSIVE .venv-run/bin/python examples/digits.py

# The quick checks, within four minutes on two cores; .ci/run has those below as well.
test: lint types imports unit

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(MAKE) --jobs 2 --output-sync types-package types-tests

types-package:
	$(BIN)/mypy

types-tests:
	$(BIN)/mypy --config-file tests/mypy.ini

imports: .venv/installed
	$(BIN)/lint-imports

unit: .venv/installed
	$(BIN)/pytest -n auto -m 'not slow and not browser'

# What needs compilers, clusters, emulators, notebooks or many processes.
test-slow: .venv/installed
	$(BIN)/pytest -n auto -m 'slow and not browser'

test-browser: .venv/installed
	$(BIN)/pytest -m browser tests/browser

# Single faults, put into a copy of the code one after another: each must make a test fail.
faults: .venv/installed
	$(BIN)/python tests/faults

# Hard times, in some three hours on two cores, of which one is the soak; writes docs/results/torture.md.
torture: .venv/installed
	$(BIN)/python tests/torture

# Train, evaluate, report and remove for HOURS, and renew that line of docs/results/torture.md.
HOURS ?= 1
soak: .venv/installed
	$(BIN)/python tests/torture --only soak --soak $(HOURS)

# The site, in site/; docs-serve shows it on http://127.0.0.1:8000 and follows changes.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# The sdist and the wheel, in dist/: the wheel of Linux on x86-64 has compiled kernels.
dist:
	$(PYTHON) tools/dist.py

# The checks before a release, one after another, in some minutes. ARGS='--python PATH ... --torch VERSION ...'
# installs the wheel for other versions as well: see tools/release.py.
release-check: .venv/installed
	$(BIN)/python tools/release.py $(ARGS)

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-run

# Of scikit-learn only the file of the digits is read, so that it comes without what it depends on.
.venv-run/installed: pyproject.toml constraints.txt
	@echo "installing torch and ultralif into .venv-run"
	$(PYTHON) -m venv .venv-run
	.venv-run/bin/pip install --quiet --constraint constraints.txt torch==2.13.0 numpy
	.venv-run/bin/pip install --quiet --constraint constraints.txt --editable .
	.venv-run/bin/pip install --quiet --constraint constraints.txt --no-deps scikit-learn
	@du -sh .venv-run
	touch $@

# torch comes first and by its exact version: any looser requirement would bring the GPU build.
.venv/installed: pyproject.toml constraints.txt tests/peers.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0 numpy
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps --requirement tests/peers.txt
	touch $@
