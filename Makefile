# Everything a contributor runs. `make` alone lists the targets.
# Written for GNU make 4.3 and a POSIX shell; the only other need is Python >= 3.11 with venv.

# The programs the targets run, each in one place.
DEMO_RENDER = $(BIN)/mmdeploy render -t e-pd -a gpu -p gke -d build/demo --force
DEMO_LINT = $(BIN)/mmdeploy lint build/demo
DEMO_VERIFY = $(BIN)/mmdeploy rehearse build/demo --debug-logs -- $(BIN)/mmdeploy verify
OVERLAYS = $(BIN)/python -m mmdeploy render --all -d overlays --force
REFERENCE = $(BIN)/python -m mmdeploy schema -o markdown
FINDINGS = $(BIN)/python -m mmdeploy explain -d guides/findings
BENCH = $(BIN)/python benchmarks/run.py
TRUTH = $(TRUTH_VENV)/bin/python -m pytest -q -rs --confcutdir tests/truth tests/truth
RIG = $(BIN)/python -m tests.rig.build
BENCH_CLUSTER = $(BIN)/python -m tests.rig.netns $(BIN)/python -m benchmarks.cluster
BENCH_VERIFY = $(BIN)/python -m tests.rig.netns $(BIN)/python -m benchmarks.verifying
E2E = MMDEPLOY_RIG=1 RIG_PYTHON=$(CURDIR)/$(BIN)/python $(BIN)/python -m pytest -q -rs --dist loadfile \
  --tx '$(PLANES)*popen//python=tests/rig/python' tests/e2e
PLANES = 2
PYTEST = $(BIN)/python -m pytest -q -rs -n 2
COVERAGE = $(BIN)/python -m coverage report --fail-under=90 --omit='$(CLUSTER_ROOMS),$(CLUSTER_COMMANDS)'

# What only a cluster reaches: `make e2e` tests it, in processes of its own that are not measured.
CLUSTER_ROOMS = mmdeploy/cluster/*,mmdeploy/apply/*,mmdeploy/preflight/*,mmdeploy/verify/cluster/*
CLUSTER_COMMANDS = mmdeploy/cli/apply.py,mmdeploy/cli/check.py,mmdeploy/cli/debugging.py,mmdeploy/cli/delete.py,mmdeploy/cli/diff.py,mmdeploy/cli/performing.py,mmdeploy/cli/status.py,mmdeploy/cli/verifying.py,mmdeploy/cli/verifying_after.py

# Pythons to try, in order; the first that is new enough and can make a venv is taken.
# `make PYTHON=/some/python3 test` puts another one in front.
PYTHONS = $(PYTHON) python3 python3.13 python3.12 python3.11

VENV = .venv
TRUTH_VENV = .venv-truth
BIN = $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
UV_VERSION = 0.13.9

.DEFAULT_GOAL = help
.DELETE_ON_ERROR:
.PHONY: help demo test check static coverage rig e2e bench bench-cluster truth overlays guides findings lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/runtime.stamp ## render the E/PD example, lint it, rehearse it on this machine, and verify that
	@$(DEMO_RENDER)
	@$(DEMO_LINT)
	@$(DEMO_VERIFY)

test: $(VENV)/dev.stamp ## run the tests (ARGS="-k name" picks some)
	@$(PYTEST) --cov --cov-report= $(ARGS)

check: ## lint, format, types, import contracts, tests, coverage
	@$(MAKE) --no-print-directory static
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory coverage

static: $(VENV)/dev.stamp ## the part of check that runs no test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

coverage: $(VENV)/dev.stamp ## hold what the last `make test` reached against the threshold
	@$(COVERAGE)

# From source, once; kept in .rig/: about 12 minutes on two cores, with Go.
rig: $(VENV)/runtime.stamp ## build the programs of the control plane that e2e needs
	@$(RIG)

# A worker has a control plane and a network of its own, with 1.5 GB of memory.
e2e: $(VENV)/dev.stamp ## test on a real control plane with fake nodes (ARGS="-k name" picks some, PLANES=1 starts one)
	@$(RIG)
	@$(E2E) $(ARGS)

bench: $(VENV)/runtime.stamp ## time mmdeploy against kubectl kustomize, as ratios (ARGS=--strict fails when over)
	@$(BENCH) $(ARGS)

bench-cluster: $(VENV)/dev.stamp ## time what needs a cluster, on the control plane of the tests, as ratios
	@$(RIG)
	@$(BENCH_CLUSTER) $(ARGS)
	@$(BENCH_VERIFY) $(ARGS)

# In an environment of its own: the models' processors bring hundreds of megabytes that nothing else needs. Those that
# need torch are skipped unless somebody installs it there: `.venv-truth/bin/python -m pip install torch torchvision`.
truth: $(TRUTH_VENV)/truth.stamp ## compare our token counts with the models' own image processors
	@$(TRUTH) $(ARGS)

overlays: $(VENV)/runtime.stamp ## render the committed overlays/ again
	@$(OVERLAYS)

# spec.md is written from the schema; everywhere else only the output that is shown after a command is renewed.
guides: $(VENV)/dev.stamp ## write guides/spec.md and the output shown in the guides again
	@$(REFERENCE) > guides/spec.md.new && mv guides/spec.md.new guides/spec.md || { rm -f guides/spec.md.new; exit 1; }
	@$(PYTEST) tests/guides --snapshot-update

findings: $(VENV)/runtime.stamp ## write guides/findings, the pages of lint's codes, again
	@$(FINDINGS)

# Pins that still fit are kept; `make lock ARGS=--upgrade` takes the newest of everything.
# The lock files name no index: pip uses the one it is set up with.
lock: $(VENV)/pyvenv.cfg ## write requirements/*.lock anew from pyproject.toml
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(BIN)/python -m venv "$$tmp"; \
	"$$tmp/bin/python" -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); \
	lock() { "$$tmp/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --custom-compile-command 'make lock' --group build $(ARGS) pyproject.toml "$$@"; }; \
	lock --output-file requirements/runtime.lock; \
	lock --extra dev --constraints requirements/runtime.lock --output-file requirements/dev.lock; \
	lock --extra truth --constraints requirements/dev.lock --output-file requirements/truth.lock

clean: ## remove .venv, build/ and caches
	@rm -rf $(VENV) $(TRUTH_VENV) build dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment for everything. A stamp is newer than the lock it was installed from, or its rule runs again.
# The project itself is installed as a link to this checkout, with the build backend that the lock pins.
$(VENV)/runtime.stamp: $(VENV)/pyvenv.cfg requirements/runtime.lock pyproject.toml
	@echo "Installing mmdeploy into $(VENV) ..." >&2
	@$(PIP_INSTALL) --require-hashes -r requirements/runtime.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/runtime.stamp requirements/dev.lock
	@echo "Installing the development tools into $(VENV) ..." >&2
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.lock
	@touch $@

$(TRUTH_VENV)/truth.stamp: $(VENV)/pyvenv.cfg requirements/truth.lock pyproject.toml
	@echo "Installing the models' processors into $(TRUTH_VENV) ..." >&2
	@$(BIN)/python -m venv $(TRUTH_VENV)
	@$(TRUTH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes \
	  -r requirements/truth.lock
	@touch $@

$(VENV)/pyvenv.cfg:
	@wanted='import sys; sys.exit(sys.version_info < (3, 11))'; found=; \
	for python in $(PYTHONS); do \
	  "$$python" -c "$$wanted" >/dev/null 2>&1 || continue; \
	  found=$$python; \
	  "$$python" -c 'import venv, ensurepip' >/dev/null 2>&1 || continue; \
	  "$$python" -m venv $(VENV) && exit 0 || exit 1; \
	done; \
	if [ -n "$$found" ]; then \
	  echo "$$found cannot make virtual environments: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	else \
	  echo "mmdeploy needs Python 3.11 or newer; tried: $(strip $(PYTHONS))." >&2; \
	  echo "If you have one elsewhere: make PYTHON=/path/to/python3 ..." >&2; \
	fi; \
	exit 1
