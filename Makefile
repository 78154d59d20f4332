# make quickstart   install, then train and report on real text in a few minutes
# make test         the whole suite; make lint: style and types; make help: everything

# torch has no wheels for the newest Pythons at first: prefer the versions this is tested with.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
TRITON_VENV := .venv-triton
WHEEL_VENV := .venv-wheel
BUILD_VENV := .venv-build
FLOORS_VENV := .venv-floors
FLOOR_TESTS := $(addprefix tests/,models/test_adapters.py models/test_backbone.py mining distributed/test_strategies.py \
	predict/test_predictor.py pipeline/test_pipeline.py cluster/test_smoke_llama.py)
READY_TESTS := $(addprefix tests/,tools/test_gpu_checks.py launch/test_launch.py training/test_host_waits.py training/test_label_parallel.py)

# DeepSpeed compiles an extension at its first start and looks for ninja on the PATH.
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: help quickstart install dev test test-faults test-triton test-floors test-wheel gpu-ready fuzz lint size format docs \
	site site-serve gallery clean distclean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(VENV)/.stamp  ## install, then train, evaluate and report on docstrings with a packaged MiniLM
	$(BIN)/xmtc train configs/quickstart.yaml

install: $(VENV)/.stamp  ## .venv with the package, Ray and DeepSpeed, at the versions of constraints.txt

dev: $(VENV)/.stamp-dev  ## the same with the tools for tests and style

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; install it, or run make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.stamp-docs: $(VENV)/.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# Three processes on two cores: a third of the time goes into waiting for Ray, servers and timeouts.
test: $(VENV)/.stamp-dev  ## the whole suite but the slow fault tests, 6 to 10 minutes on 2 cores
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not faults" $(PYTEST_ARGS)

test-faults: $(VENV)/.stamp-dev  ## kill workers in the middle and resume; slow
	$(BIN)/python -m pytest -m faults $(PYTEST_ARGS)

fuzz: $(VENV)/.stamp-dev  ## the property tests, with 3,000 examples each instead of 100
	$(BIN)/python -m pytest -m "hypothesis and not faults" --hypothesis-profile=fuzz $(PYTEST_ARGS)

test-triton: $(TRITON_VENV)/.stamp  ## the Triton kernels in Triton's interpreter, and compiled for GPUs, without one
	PYTHONPATH=. $(TRITON_VENV)/bin/python tools/check/compiled_kernels.py --widths 128
	TRITON_INTERPRET=1 $(TRITON_VENV)/bin/python -m pytest tests/models -k triton $(PYTEST_ARGS)

# SWIG crashes Python where warnings are errors, before its version 4.4.
test-floors: $(FLOORS_VENV)/.stamp  ## models, strategies and a whole run with the oldest versions that pyproject.toml allows
	PYTHONPATH=. $(FLOORS_VENV)/bin/python -m pytest -o filterwarnings=default $(FLOOR_TESTS) $(PYTEST_ARGS)

gpu-ready: $(TRITON_VENV)/.stamp test-floors  ## all that can be known about GPUs without one; minutes
	PYTHONPATH=. $(TRITON_VENV)/bin/python tools/check/compiled_kernels.py
	TRITON_INTERPRET=1 $(TRITON_VENV)/bin/python -m pytest tests/models -k triton
	$(BIN)/python tools/check/fake_step.py
	$(BIN)/python -m pytest -v $(READY_TESTS)

test-wheel: $(VENV)/.stamp-dev  ## build and check the packages; install the wheel alone, predict and train with it
	rm -rf build dist $(BUILD_VENV) $(WHEEL_VENV)
	$(BIN)/python -m venv $(BUILD_VENV)
	$(BUILD_VENV)/bin/python -m pip install --quiet --disable-pip-version-check build twine
	$(BUILD_VENV)/bin/python -m build
	$(BUILD_VENV)/bin/python -m twine check --strict dist/*
	$(BIN)/python -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	XMTC_SMALL_PYTHON=$(abspath $(WHEEL_VENV))/bin/python $(BIN)/python -m pytest tests/house/test_small_install.py $(PYTEST_ARGS)

# Triton unpacks to 1 GB, so it has a separate environment, which sees the packages of the main one.
$(TRITON_VENV)/.stamp: $(VENV)/.stamp-dev
	test -d $(TRITON_VENV) || $(BIN)/python -m venv $(TRITON_VENV)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(TRITON_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/main.pth"
	$(TRITON_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt triton==3.7.1  # as PyTorch 2.13 has it on GPUs
	@touch $@

# The oldest versions lie over the main environment. PyTorch, the largest, and what belongs to it stay as they are there.
$(FLOORS_VENV)/.stamp: $(VENV)/.stamp-dev
	test -d $(FLOORS_VENV) || $(BIN)/python -m venv $(FLOORS_VENV)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(FLOORS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/main.pth"
	$(BIN)/python tools/check/floors.py > $(FLOORS_VENV)/floors.txt
	$(FLOORS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $(FLOORS_VENV)/floors.txt
	@touch $@

lint: $(VENV)/.stamp-dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

size: $(VENV)/.stamp  ## lines, tokens, tokens a line, keys and words, by room; limits nothing
	$(BIN)/python tools/check/size.py

format: $(VENV)/.stamp-dev  ## fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.stamp  ## write the reference pages of configuration and command line, and the picture of the folders
	$(BIN)/python tools/docs/configuration_reference.py docs/reference/configuration.md
	$(BIN)/python tools/docs/cli_reference.py docs/reference/cli.md
	$(BIN)/python tools/docs/architecture.py docs/images/architecture.svg

site: $(VENV)/.stamp-docs docs  ## build the documentation into site/; broken links and anchors are errors
	$(BIN)/mkdocs build --strict --quiet

gallery: $(VENV)/.stamp-dev  ## make the pictures of the documentation again; needs Chromium, takes minutes
	PYTHONPATH=tests/support $(BIN)/python tools/docs/gallery.py docs/images/gallery

site-serve: $(VENV)/.stamp-docs  ## show the documentation at http://127.0.0.1:8000 while you write
	$(BIN)/mkdocs serve --strict

clean:  ## remove caches and build results; keeps runs, corpora and .venv
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find xmtc tests tools launch -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## the same, and the environments
	rm -rf $(VENV) $(TRITON_VENV) $(FLOORS_VENV) $(WHEEL_VENV) $(BUILD_VENV)
