# Set-up and tests of nbagent. `make help` says what there is; GNU make 4.3 and any POSIX shell do.
.SUFFIXES:
.PHONY: help setup demo test check panel fuzz test-matrix lock clean

VENV = .venv
RUN = $(VENV)/bin/python
STAMP = $(VENV)/.complete
PANEL = $(RUN) tools/build_labextension.py --link
PANEL_SOURCES = $(shell find labextension/src labextension/style labextension/schema labextension/*.json -type f 2>/dev/null)
PANEL_STAMP = $(VENV)/.panel
LOCK = requirements-lock.txt
PIP = -m pip --disable-pip-version-check --no-input
JOBS = 2
STORIES = 10000
TESTS = tests
FIND_PYTHON = for p in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; p=; done; \
	if [ -z "$$p" ]; then echo "nbagent needs Python 3.11 or newer; name one: make setup PYTHON=/path/to/python" >&2; exit 1; fi
# No key, no network, a home of its own: what is tested is the recording.
SEALED = h=$$(mktemp -d) && trap 'rm -rf "$$h"' EXIT && env -u ANTHROPIC_API_KEY NBAGENT_HOME="$$h" NBAGENT_OFFLINE=1

help:
	@echo "make demo         open the first tutorial in JupyterLab; CHECK=1 runs it here and prints the answers"
	@echo "make test         all tests"
	@echo "make check        ruff and mypy"
	@echo "make setup        only make the virtual environment .venv (PYTHON=... chooses the Python)"
	@echo "make panel        only build the JupyterLab panel, where its sources changed"
	@echo "make fuzz         ten thousand stories for each policy, and property tests with many more examples"
	@echo "make test-matrix  kernel tests against several versions of ipykernel"
	@echo "make lock         write requirements-lock.txt anew"
	@echo "make clean        remove caches and builds"

setup: $(STAMP) $(PANEL_STAMP)

$(STAMP): $(LOCK) pyproject.toml
	@$(FIND_PYTHON); $(RUN) $(PIP) --version >/dev/null 2>&1 || $$p -m venv --clear $(VENV) || { \
	  echo "the virtual environment could not be made; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV); this takes a few minutes the first time ..."
	@$(RUN) $(PIP) install -qq -c $(LOCK) hatchling editables
	@$(RUN) $(PIP) install -qq -c $(LOCK) --no-build-isolation -e ".[lab,test]"
	@touch $(STAMP)

# The panel is wanted, not needed: without node (and without a way to get it) a line says so, and all else works.
$(PANEL_STAMP): $(STAMP) $(PANEL_SOURCES)
	@$(PANEL) --fetch-node --optional
	@touch $(PANEL_STAMP)

panel: $(STAMP)
	@$(PANEL) --fetch-node && touch $(PANEL_STAMP)

demo: setup
	@$(RUN) -m nbagent demo $(if $(filter-out 0 no,$(CHECK)),--check) $(if $(FOLDER),--folder "$(FOLDER)")

test: setup
	$(RUN) tools/build_labextension.py --run test
	$(RUN) -m pytest -n $(JOBS) -m "not kernel" --ignore=tests/browser $(TESTS) || [ $$? -eq 5 ] # 5: none in TESTS
	$(RUN) -m pytest -n $(JOBS) --dist loadfile -m kernel --ignore=tests/browser $(TESTS) || [ $$? -eq 5 ] # 5: none in TESTS
	@echo "Notebooks, replayed (tests/test_notebooks.py has run them twice, in two folders):"; \
	$(SEALED) $(RUN) -m pytest -n $(JOBS) --dist loadfile --nbval -p tests.kernels -p no:cacheprovider notebooks/*.ipynb
	@c="$${NBAGENT_CHROMIUM:-$$(command -v chromium || command -v chromium-browser || true)}"; \
	if [ ! -d tests/browser ]; then echo "Browser tests: not run, there are none."; \
	elif [ -z "$$c" ]; then echo "Browser tests: NOT RUN, no Chromium was found (install it, or set NBAGENT_CHROMIUM)."; \
	else export NBAGENT_CHROMIUM="$$c"; $(RUN) -m pytest -n $(JOBS) --dist loadfile tests/browser && echo "Browser tests: run with $$c."; fi

check: setup
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) tools/build_labextension.py --run check

# The stories go on where they were stopped (build/fuzz.json), as long as the code is the same.
fuzz: $(STAMP)
	$(RUN) -m tests.contracts.fuzz --jobs $(JOBS) --stories $(STORIES)
	NBAGENT_HYPOTHESIS=fuzz $(RUN) -m pytest -n $(JOBS) -m "hypothesis and not kernel" --timeout=7200 -k "not test_a_story_keeps" $(TESTS)

test-matrix: $(STAMP)
	$(RUN) tests/matrix.py $(VERSIONS)

lock:
	@$(FIND_PYTHON); v=build/lock-venv; $$p -m venv --clear $$v && $$v/bin/python $(PIP) install -qq ".[lab,test]" && \
	$$v/bin/python $(PIP) freeze --exclude jupyter-nbagent | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' | sort -f > build/lock.txt && \
	mv build/lock.txt $(LOCK) && rm -rf $$v && echo "$(LOCK): $$(wc -l < $(LOCK)) packages"

clean:
	rm -rf build dist nbagent/labextension labextension/lib $(PANEL_STAMP) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find nbagent tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
