# The ways to run this project. Everything happens in environments of its own, which are made once
# and brought up to date when pyproject.toml or the pins change.
#
#   PYTHON=python3.11   the interpreter; without it scripts/find-python finds the newest that fits
#   ARGS='-k replay'    arguments for the command that is run

VENV ?= .venv
# The engines to compare with pin other versions than we do, so they have an environment for themselves.
BENCH_VENV ?= .venv-bench
PIP_INSTALL = bin/python -m pip --disable-pip-version-check install -qq

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench FORCE

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.cli ## invoices through a flaky ledger, while the worker is killed twice
	@$(VENV)/bin/python examples/invoices/demo.py $(ARGS)

test: $(VENV)/.dev ## run the tests
	@$(VENV)/bin/python -m pytest -n auto --dist worksteal $(ARGS)

check: $(VENV)/.dev ## check layout, style, types and layers
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/.dev ## lay out the code and mend what the linter can mend
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(BENCH_VENV)/.bench ## measure, next to the limits of the machine and to other engines
	@$(BENCH_VENV)/bin/python -m bench $(ARGS)

# Stamps: .python holds what PYTHON was when the environment was made; each other one says that an
# extra is installed.

$(VENV)/.python $(BENCH_VENV)/.python:
	@python=$$(PYTHON='$(PYTHON)' sh scripts/find-python) || exit 1; \
	echo "making $(@D) with $$python"; \
	"$$python" -m venv --clear $(@D) && echo '$(PYTHON)' > $@

# An environment is made again when its interpreter is gone, or is not the one that PYTHON names.
stale = $(shell test -x $(1)/bin/python || echo FORCE) \
        $(if $(PYTHON),$(shell test '$(PYTHON)' = "$$(cat $(1)/.python 2>/dev/null)" || echo FORCE))
$(VENV)/.python: $(call stale,$(VENV))
$(BENCH_VENV)/.python: $(call stale,$(BENCH_VENV))

$(VENV)/.cli: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing perdure into $(VENV)"
	@$(VENV)/$(PIP_INSTALL) -c constraints.txt -e '.[cli]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing perdure and its development tools into $(VENV)"
	@$(VENV)/$(PIP_INSTALL) -c constraints.txt -e '.[cli,dev]'
	@touch $@ $(VENV)/.cli

$(BENCH_VENV)/.bench: $(BENCH_VENV)/.python pyproject.toml constraints.txt bench/constraints.txt
	@echo "installing perdure and other engines into $(BENCH_VENV)"
	@$(BENCH_VENV)/$(PIP_INSTALL) -c bench/constraints.txt -e '.[cli,bench]' || { \
	    echo "the other engines do not install here, so perdure is measured without them"; \
	    $(BENCH_VENV)/$(PIP_INSTALL) -c constraints.txt -e '.[cli]'; }
	@touch $@
