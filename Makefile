# `make book` and `make test` do all the set-up themselves; see `make help`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TODAY  := .venv-today
LOCK   ?= requirements.lock
export OMP_NUM_THREADS ?= 2
# Where an image forbids bytecode, each process would compile PyTorch and the rest anew, for 2 to 8 seconds.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help book today pdf axe test test-processors test-seeds test-slow test-pages test-platforms test-versions lint recheck lab paper bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: $(READY) ## Run every notebook in the quick profile and build the HTML, warnings being errors
	$(BIN)/fedleak book

today: ## The book by plain Sphinx, with today's versions of it and its extensions; in an environment of its own
	$(MAKE) book VENV=$(TODAY)
	$(TODAY)/bin/python -m pip install --disable-pip-version-check -q --upgrade $$(grep -oE '^(sphinx|myst)[a-z-]*' requirements.lock)
	trap 'rm -f conf.py' EXIT; $(TODAY)/bin/jupyter-book config sphinx . && \
		PYTHONPATH=book/_ext $(TODAY)/bin/python -m sphinx -b html -W --keep-going . _build/today

pdf: book ## The book as one PDF, _build/fedleak.pdf (needs Chromium)
	$(BIN)/python book/_tools/pages.py pdf

axe: book ## Check the pages for accessibility with axe-core (needs Chromium)
	$(BIN)/python book/_tools/pages.py axe

test: lint ## Lint, then the tests of minutes: units, properties, devices, records; a process a core
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 4 --dist loadfile

test-processors: $(READY) ## The numerical tests as other processors and numbers of threads compute them (most of an hour)
	failed=; for setting in NATIVE=1 ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=AVX2; do \
		for threads in 1 2; do \
			echo "$$setting, threads: $$threads"; \
			env $$setting OMP_NUM_THREADS=$$threads $(BIN)/python -m pytest -q -m "not slow" tests/attacks tests/models tests/federated || failed="$$failed $$setting/$$threads"; \
		done; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

test-seeds: $(READY) ## The tests of minutes with other random seeds (SEEDS="1 2"): a test that rests on one lucky seed fails
	failed=; for seed in $(or $(SEEDS),1 2); do \
		FEDLEAK_TEST_SEED=$$seed OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" -n auto --maxprocesses 4 --dist loadfile || failed="$$failed $$seed"; \
	done; test -z "$$failed" || { echo "failed with seed:$$failed"; exit 1; }

test-slow: book ## The tests that take longer: notebooks, the book and its internal links, a killed worker, grading, a cell of every experiment
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n auto --maxprocesses 4 --dist loadfile

test-pages: book ## Of these the notebooks, the book's pages, and the numbers in them
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow tests/test_pages.py tests/test_notebooks.py tests/chapters -n auto --maxprocesses 4 --dist loadfile

test-platforms: $(READY) ## Classifiers of transformers, timm and peft: the real packages, in an environment over the project's
	set -e; env=.venv-platforms; site() { $$1 -c "import sysconfig; print(sysconfig.get_path('purelib'))"; }; \
	test -x $$env/bin/python || $(BIN)/python -m venv $$env; \
	echo "import site; site.addsitedir('$$(site $(BIN)/python)')" > $$(site $$env/bin/python)/project.pth; \
	$$env/bin/python -m pip install --disable-pip-version-check -q --no-deps --no-compile -r tests/platforms/models.lock; \
	OMP_NUM_THREADS=1 $$env/bin/python -m pytest -q tests/platforms/test_models.py

test-versions: $(READY) ## The tests with the lowest versions that pyproject.toml allows, and with the newest, each in an environment of its own
	failed=; for which in lowest-direct highest; do \
		lock=.venv-$$which.lock; \
		$(BIN)/uv pip compile -q --no-header --no-annotate --resolution $$which --extra book --extra dev pyproject.toml -o $$lock; \
		$(MAKE) .venv-$$which/.ready VENV=.venv-$$which LOCK=$$lock && \
			OMP_NUM_THREADS=1 .venv-$$which/bin/python -m pytest -m "not slow" -n auto --maxprocesses 4 --dist loadfile || failed="$$failed $$which"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

lint: $(READY) ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

recheck: $(READY) ## Compute some recorded results again, drawn at random, and compare
	$(BIN)/fedleak recheck

lab: $(READY) ## Open the notebooks in JupyterLab
	$(BIN)/jupyter lab notebooks/

paper: $(READY) ## Run every notebook in the paper profile and record the results (hours; a GPU helps)
	set -e; for notebook in notebooks/*.ipynb; do \
		$(BIN)/fedleak run "$$(basename "$$notebook" .ipynb)" --profile paper --record$(if $(SCHEDULER), --scheduler $(SCHEDULER)); \
	done

bench: $(READY) ## Run every benchmark
	set -e; for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark"; done

clean: ## Remove the built book, the executed notebooks and the caches, but not the environment
	rm -rf _build book/_generated .pytest_cache .hypothesis .mypy_cache .ruff_cache

$(READY): $(LOCK) pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedleak needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 book")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-compile -r $(LOCK)
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@touch $@
