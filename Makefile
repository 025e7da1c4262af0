# Two commands matter: `make demo` opens JupyterLab with simulated GPUs, `make test` runs every test.
# Both install what is missing on a fresh machine (Debian 12, Python >= 3.11, Node >= 20).

SHELL  := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV   := .venv
BIN    := $(CURDIR)/$(VENV)/bin
PY     := $(BIN)/python
STAMPS := $(VENV)/.stamps
LAB    := jupyter_gpushare/labextension
SHARED := $(VENV)/share/jupyter/labextensions/jupyter-gpushare
LAB_SOURCES := $(shell find labextension/src labextension/style labextension/schema -type f 2>/dev/null) labextension/package.json labextension/tsconfig.json
ARGS   ?=
# test files that run in parallel; most of a test is waiting for servers and kernels
WORKERS ?= $(shell expr 1 + `nproc`)
# jlpm and node run from any folder and never prompt
export PATH := $(BIN):$(PATH)
export YARN_ENABLE_TELEMETRY := 0
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD := 1
# Keep compiled files: the tests start hundreds of processes, and each would compile everything again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv kernels demo check lint typecheck floors unit unit-decisions unit-service ts test hub5 bench docs screenshots schema schema-check dist release clean kube-assets test-kube

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# ---- set-up -------------------------------------------------------------------------------------

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed ($(PYTHON))" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); apt-get update -q && apt-get install -y -q python3-venv && $(PYTHON) -m venv $(VENV); }

$(STAMPS)/tools: | $(PY) ## build tools, including jlpm for the front end
	@mkdir -p $(STAMPS)
	$(PY) -m pip install -q "hatchling>=1.27" "hatch-nodejs-version>=0.3.2" "hatch-jupyter-builder>=0.9.1" "jupyter-builder>=1.2.0,<2" "editables>=0.5"
	@touch $@

$(STAMPS)/node_modules: labextension/package.json labextension/yarn.lock labextension/.yarnrc.yml $(STAMPS)/tools
	@command -v node >/dev/null || { echo "error: Node 20 or newer is needed (node)" >&2; exit 1; }
	cd labextension && jlpm install --immutable > ../$(STAMPS)/jlpm.log 2>&1 || { tail -30 ../$(STAMPS)/jlpm.log; exit 1; }
	@touch $@

$(STAMPS)/labextension: $(LAB_SOURCES) $(STAMPS)/node_modules
	cd labextension && jlpm build:prod
	@touch $@

$(STAMPS)/installed: pyproject.toml labextension/package.json jupyter_gpushare/server_extension/enable.json $(STAMPS)/tools $(STAMPS)/node_modules | $(STAMPS)/labextension
	@rm -rf $(SHARED) # pip must not follow the link of an earlier run into this tree
	$(PY) -m pip install -q --no-build-isolation -e '.[test,dev,demo,plot,docs]'
	@rm -rf $(SHARED) && ln -s $(CURDIR)/$(LAB) $(SHARED) # a later build takes effect without another install
	@touch $@

venv: $(STAMPS)/installed $(STAMPS)/labextension ## .venv with all dependencies, and the built front end

$(STAMPS)/cc: | $(PY) ## for tests/fake_driver, which is built by the tests that use it
	@command -v cc >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/shells: | $(PY) ## for the tests of shell completion
	@{ command -v zsh && command -v fish; } >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends zsh fish; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/chromium: | $(PY)
	@command -v chromium >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/postgresql: | $(PY) ## for the database tests, which start a server of their own; without it they are skipped
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends postgresql; }
	@mkdir -p $(STAMPS) && touch $@

# A cluster for tests/kube. Programs on KUBEBUILDER_ASSETS or PATH are used; the others are built.
$(STAMPS)/kube-packages: | $(PY)
	@{ command -v etcd && command -v containerd && command -v runc && command -v ip && test -x /usr/lib/cni/bridge; } >/dev/null || \
	  { apt-get update -q && apt-get install -y -q --no-install-recommends etcd-server containerd runc containernetworking-plugins iptables conntrack iproute2; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/kube-programs: tests/kube/tools/go.mod tests/kube/tools/build.sh | $(PY)
	tests/kube/tools/build.sh $(VENV)/kube
	@mkdir -p $(STAMPS) && touch $@

kube-assets: $(STAMPS)/cc $(STAMPS)/kube-packages $(STAMPS)/kube-programs ## what tests/kube needs for a real cluster; about 7 minutes, once

$(STAMPS)/kernels: tests/environments.py $(STAMPS)/installed
	@test -d /usr/lib/R/site-library/IRkernel || { apt-get update -q && timeout 300 apt-get install -y -q --no-install-recommends r-cran-irkernel; } || \
	  echo "no IRkernel: the tests of R kernels are skipped"
	@ldconfig -p | grep -q libEGL.so.1 || { apt-get update -q && timeout 300 apt-get install -y -q --no-install-recommends libegl1 libgl1 libxkbcommon0 libfontconfig1 libdbus-1-3; } || \
	  echo "no libEGL: the tests of qtconsole are skipped"
	$(PY) -m tests.environments
	@touch $@

kernels: $(STAMPS)/kernels ## environments without our package, for the tests of their kernels

# ---- run ----------------------------------------------------------------------------------------

demo: venv ## JupyterLab with an embedded scheduler and simulated GPUs (ARGS="--no-browser --port 8890 --gpus 4")
	@exec $(BIN)/jupyter gpushare demo $(ARGS)

# ---- check --------------------------------------------------------------------------------------

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

typecheck: venv
	$(BIN)/mypy

floors: venv
	$(BIN)/lint-imports

schema-check: venv
	$(PY) -m jupyter_gpushare.routes --openapi docs/openapi.json --typescript labextension/src/schema.ts --check

ts: venv
	cd labextension && jlpm run -T tsc --noEmit && jlpm jest --silent

# What needs neither servers, kernels nor a browser, with an eighth of the random examples (tests/example_counts.py). schemathesis is loaded only where it is used.
QUICK := GPUSHARE_QUICK=1 $(PY) -m pytest -q -m "not slow and not browser and not gpu" -p no:schemathesis

unit-service: venv
	$(QUICK) tests/scheduler --ignore tests/scheduler/test_openapi.py

unit-decisions: venv $(STAMPS)/cc
	$(QUICK) tests --ignore tests/scheduler --ignore tests/story --ignore tests/benchmarks

unit: unit-decisions unit-service

check: venv $(STAMPS)/cc ## the quick checks, in parallel: no servers, no browser; less than a minute
	@$(MAKE) --no-print-directory -j3 --keep-going --output-sync=target unit-service unit-decisions typecheck ts lint floors schema-check

PYTEST := $(PY) -m pytest -q --ignore tests/benchmarks
PARALLEL := $(PYTEST) -m "not gpu and not kube"
KUBE := $(PYTEST) -m kube tests/kube

test: venv $(STAMPS)/cc $(STAMPS)/chromium $(STAMPS)/postgresql $(STAMPS)/shells $(STAMPS)/kernels ## everything, browser and story tests included; all steps run even if one fails
	@failed=; for step in lint typecheck floors schema-check ts; do $(MAKE) --no-print-directory $$step || failed="$$failed $$step"; done; \
	  $(PARALLEL) -n $(WORKERS) --dist loadfile || { echo "again, one after the other: what failed beside other tests"; $(PARALLEL) --last-failed --last-failed-no-failures none; } || failed="$$failed pytest"; \
	  $(MAKE) --no-print-directory test-kube || failed="$$failed test-kube"; \
	  test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

test-kube: venv ## the tests on a real Kubernetes cluster; they are skipped where it cannot run
	@$(MAKE) --no-print-directory kube-assets || echo "the programs of a cluster are missing: the tests that need them are skipped"
	$(KUBE) || { echo "again: what failed"; $(KUBE) --last-failed --last-failed-no-failures none; }

hub5: venv ## the JupyterHub story test with JupyterHub 5; `make test` runs it with the newest version
	$(PYTHON) -m venv $(VENV)/hub5
	$(VENV)/hub5/bin/python -m pip install -q --no-build-isolation hatchling hatch-nodejs-version hatch-jupyter-builder editables
	$(VENV)/hub5/bin/python -m pip install -q --no-build-isolation -e '.[hub,scheduler]' 'jupyterhub>=5,<6' jupyterlab psutil pytest pytest-timeout websocket-client
	$(VENV)/hub5/bin/python -m pytest -q tests/story/test_hub.py

bench: venv ## benchmarks; the output is also written to docs/measurements
	@set -e; for file in tests/benchmarks/bench_*.py; do name=$$(basename $$file .py); echo "== $$name"; \
	  $(PY) -m tests.benchmarks.$$name | tee docs/measurements/$$name.txt; done

# ---- make ---------------------------------------------------------------------------------------

schema: venv ## generate schema.ts, openapi.json and docs/reference from the code
	$(PY) -m jupyter_gpushare.routes --openapi docs/openapi.json --typescript labextension/src/schema.ts
	$(PY) docs/render_reference.py

docs: venv ## build the site in docs/_build/html, with warnings as errors, and check the examples and links
	$(PY) -m sphinx -W --keep-going -n -q -j auto docs docs/_build/html
	$(PY) -m pytest -q tests/docs

screenshots: venv $(STAMPS)/chromium ## take the screenshots of README and docs from the running product
	$(PY) tests/ui/screenshots.py docs/images

dist: venv ## wheel and sdist in dist/, checked as PyPI and pip do, and the bill of materials in build/
	rm -rf dist && $(PY) -m build --no-isolation
	$(PY) -m twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(PY) docs/packaging/sbom.py dist/*.whl build/sbom.spdx.json

release: venv ## version and release notes, committed and tagged: make release VERSION=1.2.3 (DRY_RUN=1: only show)
	@test -n "$(VERSION)" || { echo "error: make release VERSION=1.2.3" >&2; exit 2; }
	@test -n "$(DRY_RUN)" || test -z "$$(git status --porcelain)" || { echo "error: commit your changes first" >&2; exit 1; }
	$(PY) docs/packaging/release.py $(VERSION) $(if $(DRY_RUN),--dry-run)
ifndef DRY_RUN
	$(MAKE) --no-print-directory schema dist
	git add --all && git commit --quiet --message "Version $(VERSION)" && git tag --annotate v$(VERSION) --message "Version $(VERSION)"
	@echo "git push --follow-tags publishes it"
endif

clean: ## remove build output; keep .venv
	rm -rf dist build docs/_build labextension/lib labextension/*.tsbuildinfo $(LAB) $(STAMPS)/labextension
