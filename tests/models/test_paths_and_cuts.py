"""Paths of banks, which members a pattern means, and which nodes can be cut."""

from __future__ import annotations

import numpy as np
import pytest

from mixle_mpi import Categorical, Composite, Exponential, Gaussian, Mixture, ModelError, Optional, Poisson, Record
from mixle_mpi.contract.path import Path, UnitLevel
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.execution.shard import PathCuts, check_cut, compile_tree, cut_paths, layout_of
from mixle_mpi.models.mixture import MixtureBank

ALL = np.arange(6)


def nested():
    return Mixture(Composite(Mixture(Gaussian(), 4), Poisson()), 3)


def test_components_read_as_what_they_are():
    assert str(UnitLevel((0, 1, 2), 3)) == "component_*"
    assert str(UnitLevel((1,), 3)) == "component_1"
    assert str(UnitLevel((0, 2), 3)) == "component_{0,2}"
    assert str(UnitLevel((0,), 1)) == "component_*"
    assert str(Path() / UnitLevel((1,), 3) / "of" / "factor_0") == "component_1/of/factor_0"


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("component_*/factor_0/component_*", [True] * 6),
        ("component_1/factor_0/component_*", [False, False, True, True, False, False]),
        ("component_*/factor_0/component_1", [False, True] * 3),
        ("component_2/factor_0/component_0", [False, False, False, False, True, False]),
        ("component_2/factor_1/component_0", [False] * 6),
        ("component_2/factor_0", [False] * 6),
        ("component_7/factor_0/component_0", [False] * 6),
        ("component_x/factor_0/component_0", [False] * 6),
        ("", [False] * 6),
    ],
)
def test_select_of_nested_members(pattern, expected):
    path = Path() / UnitLevel((0, 1, 2), 3) / "factor_0" / UnitLevel((0, 1), 2)
    assert path.select(pattern, ALL).tolist() == expected
    assert path.select(pattern, ALL[3:]).tolist() == expected[3:]


def test_select_speaks_of_the_users_component_numbers():
    path = Path() / UnitLevel((0, 2, 3), 4)
    assert path.select("component_2", np.arange(3)).tolist() == [False, True, False]
    assert path.select("component_1", np.arange(3)).tolist() == [False, False, False]
    assert Path().select("", np.zeros(1, int)).tolist() == [True]


def test_cut_paths_are_all_nodes_that_can_be_cut_in_tree_order():
    assert cut_paths(nested()) == ["", "component_*", "component_*/factor_0"]
    assert cut_paths(Gaussian()) == []
    assert cut_paths(Mixture(Gaussian(), 1)) == []
    tree = Record(left=Mixture([Gaussian(), Mixture(Exponential(), 2)]), right=Optional(Mixture(Poisson(), 5)))
    assert cut_paths(tree) == ["", "left", "left/component_1", "right/of"]
    assert cut_paths(Composite(Optional(Composite(Gaussian(), Poisson())))) == ["factor_0/of"]


@pytest.mark.parametrize(
    "pattern", ["", "component_*", "component_1", "component_*/factor_0", "component_2/factor_0"]
)
def test_check_cut_accepts(pattern):
    assert check_cut(nested(), pattern) == pattern


@pytest.mark.parametrize(
    "pattern",
    ["component_3", "component_*/factor_1", "component_*/factor_2", "factor_0", "component_*/factor_0/component_0"],
)
def test_check_cut_refuses_and_names_what_can_be_cut(pattern):
    with pytest.raises(ModelError) as refused:
        check_cut(nested(), pattern)
    for known in (pattern, "(the root)", "'component_*/factor_0'"):
        assert known in str(refused.value)


TREES = {
    "mixture of seven": (Mixture(Gaussian(), 7), [1.0, 2.0], ""),
    "interleaved": (Mixture([Gaussian(), Exponential(), Gaussian(), Poisson(), Gaussian()]), [1.0, 2.0], ""),
    "inner of all": (nested(), [(1.0, 2.0), (2.0, 1.0)], "component_*/factor_0"),
    "inner of one": (nested(), [(1.0, 2.0), (2.0, 1.0)], "component_1/factor_0"),
    "outer": (nested(), [(1.0, 2.0), (2.0, 1.0)], ""),
    "factors": (nested(), [(1.0, 2.0), (2.0, 1.0)], "component_*"),
    "optional": (Composite(Optional(Mixture(Gaussian(), 5)), Categorical()), [(1.0, "a"), (None, "b")], "factor_0/of"),
}


@pytest.mark.parametrize("shards", [2, 3, 5, 9])
@pytest.mark.parametrize("name", TREES)
def test_shards_hold_every_row_of_every_matrix_and_exclusive_ones_once(name, shards):
    model, data, cut = TREES[name]
    bound = load(data, model, serial_grid()).model
    whole = {m.name: m for m in layout_of(compile_tree(bound, None, True)).matrices}
    held = {n: np.zeros(m.total_rows, int) for n, m in whole.items()}
    alone = {n: np.zeros(m.total_rows, int) for n, m in whole.items()}
    for shard in range(shards):
        for m in layout_of(compile_tree(bound, PathCuts(cut, shard, shards), False)).matrices:
            assert m.total_rows == whole[m.name].total_rows
            assert (np.diff(m.rows) > 0).all()
            held[m.name][m.rows] += 1
            alone[m.name][m.rows[m.holders.alone]] += 1
            assert m.params == whole[m.name].params and m.stats == whole[m.name].stats
    cut_something = False
    for n in whole:
        assert (held[n] >= 1).all(), "every row has a holder"
        assert ((alone[n] == 0) | (held[n] == 1)).all(), "what is called exclusive has one holder"
        assert ((alone[n] == 1) == (held[n] == 1)).all()
        cut_something |= bool((held[n] == 1).any())
    assert cut_something


def test_units_of_a_cut_member_are_contiguous_ranges():
    bound = load(*TREES["mixture of seven"][1::-1], serial_grid()).model
    got = []
    for shard in range(3):
        bank = compile_tree(bound, PathCuts("", shard, 3), False)
        assert isinstance(bank, MixtureBank)
        got.append(bank.unit_number.tolist())
    assert got == [[0, 1], [2, 3], [4, 5, 6]]
