"""The house: who may import whom, and who may speak to MPI. Read from the files, nothing is imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "mixle_mpi"
FILES = sorted(p for p in PACKAGE.rglob("*.py"))
every = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))

# Each room may import the rooms before it and itself.
ROOMS = ["kernels", "contract", "families", "models", "planning", "data", "execution", "report", "commands"]
ALLOWED = {
    "kernels": set(),
    "contract": set(),
    "families": {"contract", "kernels"},
    "models": {"contract", "kernels", "families"},
    "planning": {"contract", "kernels", "families", "models"},
    "data": {"contract", "kernels", "families", "models"},
    "execution": {"contract", "kernels", "families", "models", "planning", "data"},
    "report": {"contract", "kernels", "families", "models", "planning", "data", "execution"},
    "commands": {"contract", "kernels", "families", "models", "planning", "data", "execution", "report"},
}
# (file, module) that break the rule by name, and only inside a function
EXCEPTIONS = {
    ("contract/node.py", "mixle_mpi.execution.evaluate"),
    ("contract/node.py", "mixle_mpi.execution.sample"),
    ("contract/node.py", "mixle_mpi.execution.saved"),
    ("contract/node.py", "mixle_mpi.models.specification"),
    ("contract/family.py", "mixle_mpi.families.leaf"),
    ("planning/resources.py", "mixle_mpi.execution.grid"),
}
LIMIT = 400


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(tree: ast.AST, in_function: bool = False, for_types: bool = False):
    """(module, line, inside a function, under TYPE_CHECKING) of every import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno, in_function, for_types
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield node.module, node.lineno, in_function, for_types
            if node.module == "mixle_mpi":
                for name in (n for n in node.names if n.name != "__version__"):
                    yield f"mixle_mpi.{name.name}", node.lineno, in_function, for_types
        else:
            typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from imports_of(node, inside, for_types or typing_only)


def room_of(path: Path) -> str:
    """The folder of a file; the front doors and the package itself are above all rooms."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "front door"


def test_there_are_files_and_all_rooms_are_known():
    assert len(FILES) > 40
    assert {room_of(p) for p in FILES} <= {*ROOMS, "front door", "demo"}
    assert set(ALLOWED) == set(ROOMS)
    for number, room in enumerate(ROOMS):
        assert ALLOWED[room] <= set(ROOMS[:number]), f"{room} must not import a room after it"


@every
def test_imports_go_one_way(path):
    here, room = path.relative_to(PACKAGE).as_posix(), room_of(path)
    for module, line, in_function, for_types in imports_of(tree_of(path)):
        if not module.startswith("mixle_mpi."):
            continue
        target = module.split(".")[1]
        if room == "front door" or for_types or target == room or target in ALLOWED.get(room, set()):
            continue
        assert (here, module) in EXCEPTIONS, f"{here}:{line}: {room} must not import {module}"
        assert in_function, f"{here}:{line}: {module} may be imported inside a function only"


def test_the_exceptions_are_all_in_use():
    found = set()
    for path in FILES:
        here = path.relative_to(PACKAGE).as_posix()
        found |= {(here, module) for module, _, in_function, _ in imports_of(tree_of(path)) if in_function}
    assert found >= EXCEPTIONS


def test_node_imports_the_execution_only_inside_its_public_methods():
    classes = [n for n in tree_of(PACKAGE / "contract/node.py").body if isinstance(n, ast.ClassDef)]
    (node,) = (n for n in classes if n.name == "Node")
    for method in (n for n in node.body if isinstance(n, ast.FunctionDef)):
        if any(m.startswith("mixle_mpi") for m, *_ in imports_of(method)):
            assert method.name in {"log_density", "posterior", "sample", "save", "viterbi", "forecast",
                                   "num_parameters", "__repr__"}  # fmt: skip


@every
def test_type_checking_imports_are_within_the_room_or_below(path):
    here, room = path.relative_to(PACKAGE).as_posix(), room_of(path)
    for module, line, _, for_types in imports_of(tree_of(path)):
        if for_types and room != "front door" and module.startswith("mixle_mpi."):
            target = module.split(".")[1]
            assert target == room or target in ALLOWED[room], f"{here}:{line}: {module}"


@every
def test_only_the_grid_imports_mpi(path):
    here = path.relative_to(PACKAGE).as_posix()
    found = [m for m, *_ in imports_of(tree_of(path)) if m.split(".")[0] == "mpi4py"]
    assert not found or here == "execution/grid.py"
    if here == "execution/grid.py":
        assert found and all(inside for m, _, inside, _ in imports_of(tree_of(path)) if m.split(".")[0] == "mpi4py")


# Methods of communicators, in both spellings. The lower-case ones that `Axis` offers are its own.
UPPER = {
    "Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Barrier", "Bcast", "Gather", "Gatherv",
    "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan", "Scatter", "Scatterv", "Send", "Recv",
    "Isend", "Irecv", "Ibarrier", "Iallreduce", "Sendrecv", "Split", "Split_type", "Create_cart", "Dup", "Abort",
}  # fmt: skip
LOWER = {"gather", "scatter", "scan", "exscan", "send", "recv", "isend", "irecv", "sendrecv", "iprobe", "probe"}


@every
def test_only_the_grid_calls_communicators(path):
    here = path.relative_to(PACKAGE).as_posix()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and here != "execution/grid.py":
            owner = ast.unparse(node.value)
            assert node.attr not in UPPER or owner == "threading", f"{here}:{node.lineno}: {owner}.{node.attr}"
            group = owner.split(".")[-1].strip("_") in {"comm", "world", "axis", "grid", "data", "model", "MPI"}
            assert not (group and node.attr in LOWER), f"{here}:{node.lineno}: {owner}.{node.attr}"
            assert node.attr not in {"COMM_WORLD", "COMM_SELF"}, f"{here}:{node.lineno}"


@every
def test_there_is_no_module_level_communicator(path):
    """At module level nothing is called that could start MPI, and the grid names COMM_WORLD in functions only."""

    def at_module_level(node):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.Lambda, ast.Import, ast.ImportFrom)):
                yield child
                yield from at_module_level(child)

    makers = {"world_comm", "mpi_world", "mpi_grid", "MpiGrid", "MpiAxis", "from_mpi"}
    for node in at_module_level(tree_of(path)):
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("COMM_"), f"line {node.lineno}"
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
            assert name not in makers, f"line {node.lineno}: {name}"


# what is about compiled code, and not compiled
AROUND_KERNELS = {"cache": {"os", "tempfile"}, "compiling": {"threading", "time"}}


@every
def test_kernels_import_nothing_of_the_package_but_kernels(path):
    if room_of(path) == "kernels":
        for module, *_ in imports_of(tree_of(path)):
            top = module.split(".")[0]
            known = {"__future__", "math", "numpy", "numba"} | AROUND_KERNELS.get(path.stem, set())
            assert top in known or module.startswith("mixle_mpi.kernels"), module


@every
def test_planning_and_contract_start_without_numba_mpi_or_tables(path):
    if room_of(path) in ("contract", "planning"):
        for module, line, in_function, _ in imports_of(tree_of(path)):
            if not in_function:
                assert module.split(".")[0] not in {"numba", "mpi4py", "pandas", "pyarrow", "scipy"}, f"line {line}"


@every
def test_heavy_libraries_are_imported_late(path):
    for module, line, in_function, _ in imports_of(tree_of(path)):
        if module.split(".")[0] in {"pandas", "pyarrow", "matplotlib", "scipy", "pyspark"}:
            assert in_function, f"line {line}: {module} costs start-up time on every rank"


@every
def test_nothing_is_guessed_from_attributes(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "hasattr", f"line {node.lineno}"
            guess = node.func.id == "getattr" and len(node.args) == 3
            assert not guess, f"line {node.lineno}: getattr with a default"


@every
def test_no_exception_is_swallowed(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: a bare except"
            broad = ast.unparse(node.type) in ("Exception", "BaseException")
            if broad and all(isinstance(s, (ast.Pass, ast.Continue)) for s in node.body):
                raise AssertionError(f"line {node.lineno}: {ast.unparse(node.type)} is swallowed")


@every
def test_files_are_short_and_well_named(path):
    assert len(path.read_text().splitlines()) <= LIMIT
    for word in ("util", "helper", "manager", "handle"):
        assert word not in path.stem


@every
def test_no_pickle(path):
    """Saved files are read without pickle; what ranks exchange is pickled by mpi4py inside the grid."""
    for module, line, *_ in imports_of(tree_of(path)):
        assert module.split(".")[0] not in {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}, line
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert ast.unparse(node.value) == "False"


@every
def test_asserts_do_not_check_input(path):
    """`python -O` drops them; the package raises."""
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree_of(path)))
