# Every target does its own set-up: a virtual environment in .venv, made once.
# Needed beforehand: Python 3.11 or later (with venv), make, a C compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= out

# A machine may say that nothing that was compiled is kept (containers do). Here it is: each
# of the 150 processes that the tests start spent up to 0.8 s on compiling the library anew.
unexport PYTHONDONTWRITEBYTECODE

# The releases that are supported, with a Python that each needs.
OLDEST_PYTHON := 3.11
OLDEST_JAX := jax==0.10.2
MIDDLE_PYTHON := 3.12 3.13
MIDDLE_JAX := jax>=0.11,<0.12
NEWEST_PYTHON := 3.13 3.12
NEWEST_JAX := jax>=0.12,<0.13

# One release of PyTorch and one Python: make test-torch TORCH=2.11.0 TORCH_PYTHON=3.12.
TORCH ?= 2.15.0
TORCH_PYTHON ?= 3.11
TORCH_HOME := $(VENV)/torch-$(TORCH)-python-$(TORCH_PYTHON)

# The JAX part of the suite. It needs no PyTorch, no compiler of C and no matplotlib.
# Not docs/jax.md: the bytes that it shows are those of one release.
PAGE := tests/docs/test_pages_run.py::test_what_a_page_shows_is_what_its_examples_print
JAX_PAGES := README.md docs/start/jax-training.md docs/choosing-a-plan.md
JAX_TESTS := tests/engines/jaxpr tests/nnx tests/judges/jax \
  $(foreach page,$(JAX_PAGES),'$(PAGE)[$(page)]')

# The PyTorch part: it needs no JAX and no matplotlib.
TORCH_PAGES := $(wildcard docs/torch/*.md) docs/start/pytorch.md docs/driver.md
TORCH_SLOW := retape.engines.eager.api._compiler_budget \
  retape.engines.eager.api._memory_meter retape.lightning._callback \
  retape.transformers._callback
TORCH_PACKAGES := $(TORCH_SLOW) $(sort $(subst /,.,$(patsubst src/%/,%,$(dir $(shell \
  grep -rl '>>> ' --include='*.py' src/retape/engines/eager)))))
TORCH_TESTS := tests/engines/eager tests/judges/torch tests/trainers \
  tests/storage/test_tensors.py \
  tests/driver/test_adjoint_health.py \
  $(foreach page,$(TORCH_PAGES),'$(PAGE)[$(page)]') $(foreach name,$(TORCH_PACKAGES), \
  'tests/docs/test_docstrings.py::test_docstring_examples_print_what_they_show[$(name)]') \
  'tests/docs/test_example_programs.py::test_an_example_runs[torch/budget.py]'

.PHONY: help demo test test-slow test-pages judge test-oldest test-middle test-newest \
  test-release test-matrix test-torch bench lint format docs clean pictures screenshots \
  release-check bench-quick bench-accelerator \
  bench-accelerator-aot examples

help:
	@echo "make demo    the paper's adaptive-grid example: figures and a picture in $(OUT)/"
	@echo "make test    the tests, but for those that are marked slow"
	@echo "make test-slow  those"
	@echo "make test-pages  every page, docstring and example, the slow ones included"
	@echo "make judge   what the library promises, three minutes: PART=core, jax, torch or vlad"
	@echo "make test-release  what must pass on the newest JAX before a change is merged"
	@echo "make test-matrix  the JAX part on every JAX (-oldest, -middle, -newest)"
	@echo "make test-torch  its PyTorch part on one release: TORCH=2.15.0 TORCH_PYTHON=3.11"
	@echo "make examples  the programs of the examples folder, at full size"
	@echo "make bench   the benchmarks, in hours; ARGS=--quick sees whether each runs"
	@echo "make pictures  every picture of the documentation, drawn anew"
	@echo "make bench-accelerator  gradients on this machine's GPU; ARGS=--quick on a CPU"
	@echo "make bench-accelerator-aot  the same compiled for a GPU that is not here"
	@echo "make bench-quick  a small one of each engine, as JSON, in three minutes"
	@echo "make lint    ruff, pyright, codespell"
	@echo "make format  put the sources in ruff's format"
	@echo "make release-check  the source archive and the wheel, built and tried"
	@echo "make docs    the documentation, in site/"
	@echo "make screenshots  each kind of page, wide and narrow, light and dark (needs Chromium)"
	@echo "make clean   remove everything that the other targets made"

demo: $(VENV)/.ready-demo
	$(BIN)/python examples/adaptive_grid.py --out $(OUT)

# A worker begins with a run of files of its own, so that what a file sets up is set up
# once, and takes over from the other's when it has done these.
PYTEST := -m pytest -n auto --dist worksteal

# The aim is 2, and `make test PROCESSOR_SECONDS=2` names what is above it; the first test
# of a worker that needs a framework loads it, too (5), or starts eight devices (30).
PROCESSOR_SECONDS ?= 60

# Where nothing may be written beside the sources, each process that a test starts would
# compile them anew: 7.7 of 53 processor seconds of the tests of the driver and the command.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.ready-dev
	$(BIN)/python $(PYTEST) -m "not slow" --processor-seconds $(PROCESSOR_SECONDS) $(ARGS)

test-slow: $(VENV)/.ready-dev
	$(BIN)/python $(PYTEST) -m slow $(ARGS)

test-pages: $(VENV)/.ready-dev
	$(BIN)/python $(PYTEST) tests/docs $(ARGS)

PART ?= core
judge: $(VENV)/.ready-dev
	$(BIN)/python $(PYTEST) -m "not slow" tests/judges/$(PART) $(ARGS)

test-matrix: test-oldest test-middle test-newest

test-oldest test-middle test-newest: test-%: $(VENV)/%/.ready
	$(VENV)/$*/bin/python $(PYTEST) $(JAX_TESTS) $(ARGS)

test-release: $(VENV)/newest/.ready
	$(VENV)/newest/bin/python $(PYTEST) -m "release and not slow" $(JAX_TESTS) $(ARGS)

test-torch: $(TORCH_HOME)/.ready
	$(TORCH_HOME)/bin/python $(PYTEST) $(TORCH_TESTS) $(ARGS)

bench: $(VENV)/.ready-dev
	@$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(VENV)/.ready-dev
	@$(BIN)/python -m benchmarks.quick $(ARGS)

pictures: $(VENV)/.ready-dev
	$(BIN)/python .ci/pictures.py
	$(BIN)/python .ci/gallery.py
	$(BIN)/python examples/adaptive_grid.py --out $(OUT)
	cp $(OUT)/adaptive-grid.svg docs/assets/

# The compiler for the device is fetched into a folder of its own: 600 MB, once.
bench-accelerator-aot: $(VENV)/.ready-dev
	$(BIN)/python -m benchmarks.accelerators.described $(ARGS)

bench-accelerator: $(VENV)/.ready-dev
	$(BIN)/python -m benchmarks.accelerators.run $(ARGS)

examples: $(VENV)/.ready-dev
	@for file in examples/*.py examples/*/train.py; do \
	  echo "== $$file"; $(BIN)/python "$$file" || exit 1; \
	done

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/pyright

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

release-check: $(VENV)/.ready-dev
	$(BIN)/python .ci/check-release $(TAG)

docs: $(VENV)/.ready-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

screenshots: docs
	$(BIN)/python .ci/screenshots

clean:
	rm -rf $(VENV) $(OUT) site .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up ---------------------------------------------------------------------
# Stamps: pip runs again only if pyproject.toml is newer.

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Retape needs Python 3.11 or later; pass one: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[jax,plot]"
	@touch $@

# PyTorch first and alone, at exactly this release: resolved together with other
# packages, or by a range, it may come as a build with several GB of GPU libraries.
$(VENV)/.ready-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all,dev]"
	@touch $@ $(VENV)/.ready-demo

$(VENV)/oldest/.ready: PAIR = $(OLDEST_JAX)
$(VENV)/oldest/.ready: VERSIONS = $(OLDEST_PYTHON)
$(VENV)/middle/.ready: PAIR = $(MIDDLE_JAX)
$(VENV)/middle/.ready: VERSIONS = $(MIDDLE_PYTHON)
$(VENV)/newest/.ready: PAIR = $(NEWEST_JAX)
$(VENV)/newest/.ready: VERSIONS = $(NEWEST_PYTHON)

$(VENV)/oldest/.ready $(VENV)/middle/.ready $(VENV)/newest/.ready: pyproject.toml
	@python=$$(.ci/find-python $(VERSIONS)) && "$$python" -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	  "$(PAIR)" -e ".[nnx,test,third-party-jax]"
	@touch $@

# PyTorch first and alone, as above. Other releases than that of CI may come with some GB
# of GPU libraries, which are not used.
$(TORCH_HOME)/.ready: pyproject.toml
	@python=$$(.ci/find-python $(TORCH_PYTHON)) && "$$python" -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check "torch==$(TORCH)"
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	  "torch==$(TORCH)" -e ".[lightning,torch,transformers,test]" "torchdiffeq>=0.2.5,<0.3"
	@touch $@
