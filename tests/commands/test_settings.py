"""The run file and its options: checked, overridden, saved."""

from __future__ import annotations

import math
import sys

import pytest

from mixle_mpi.commands.fit import parser
from mixle_mpi.commands.settings import DEMO, SETTINGS, effective, parse_value, place, read, split_key, to_toml
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.models.specification import build

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GOOD = """
[data]
path = "x.csv"
[model]
type = "mixture"
components = 2
[model.component]
type = "record"
[model.component.fields]
a = { type = "optional", of = { type = "gaussian" } }
"""


@pytest.fixture
def run_file(tmp_path):
    def write(text: str):
        path = tmp_path / "here.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    "text, says",
    [
        ("[fitt]\nx = 1", "no table [fitt]; did you mean 'fit'?"),
        ("fit = 1", "fit = 1 is not a table"),
        ("[data]\npth = 'x'", "[data] has no key 'pth'; did you mean 'path'?"),
        ("[fit]\nmax_itr = 1", "[fit] has no key 'max_itr'; did you mean 'max_iter'?"),
        ("[output]\nquite = true", "[output] has no key 'quite'; did you mean 'quiet'?"),
        ("[data]\npath = 3", "data.path = 3 is not a text"),
        ("[fit]\nmax_iter = 1.5", "fit.max_iter = 1.5 is not a whole number >= 0"),
        ("[fit]\nmax_iter = -1", "fit.max_iter = -1 is not a whole number >= 0"),
        ("[fit]\nmax_iter = true", "fit.max_iter = True is not a whole number >= 0"),
        ("[fit]\ntol = 'some'", "fit.tol = 'some' is neither a number >= 0 nor \"none\""),
        ("[fit]\ntol = nan", "fit.tol = nan is neither"),
        ("[fit]\ninit = 'kmeans'", "fit.init = 'kmeans' is none of 'auto', 'kmeans++', 'random'"),
        ("[fit]\ngrid = '2by2'", "fit.grid = '2by2' is neither \"auto\" nor \"DxM\""),
        ("[fit]\nseed = 'one'", "fit.seed = 'one' is not a whole number"),
        ("[fit]\nrequire_convergence = 1", "fit.require_convergence = 1 is neither true nor false"),
        ("[output]\nevery = 0", "output.every = 0 is not a whole number >= 1"),
        ("[fit\n", "not TOML"),
        ("[model]\ntype = 'gaussian'", "the data are missing"),
        ("[data]\npath = 'x.csv'", "the table [model] is missing"),
    ],
)
def test_run_file_errors_name_the_file_the_key_and_the_nearest(run_file, text, says):
    path = run_file(text)
    with pytest.raises(ModelError) as refused:
        effective(path, [])
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "change, says",
    [
        (("model.typ", "mixture"), "model: mixture has no key 'typ'"),
        (("model.type", "mixtur"), "no model is called 'mixtur'; did you mean 'mixture'?"),
        (("model.components", "two"), "components = 'two' is not a number >= 1"),
        (("model.component.type", "recrd"), "model.component: no model is called 'recrd'; did you mean 'record'?"),
        (("model.component.fields.a.of.min_varance", 1), "model.component.fields.a.of: gaussian has no key"),
        (("model.component.fields.a.estimate_missing", "no"), "estimate_missing = 'no' is neither true nor false"),
        (("model.fields", {}), "model: mixture has no key 'fields'; it belongs under [model.component]"),
        (("model.component.fields.a", "poisson"), 'fields.a: a table with a type is needed, as in { type = '),
        (("model.component.fields.a.of.mean", "far"), "model.component.fields.a.of: "),
    ],
)
def test_model_errors_name_the_place(run_file, change, says):
    key, value = change
    settings = effective(run_file(GOOD), [(f"-o {key}={value}", key, value)])
    with pytest.raises(ModelError) as refused:
        build(settings["model"])
    assert says in str(refused.value)


def test_options_override_the_file_and_the_last_one_wins(run_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = run_file(GOOD + "[fit]\nmax_iter = 7\nseed = 3\n")
    options = [("a", "fit.max_iter", 8), ("b", "fit.max_iter", 9), ("c", "model.components", 4),
               ("d", "model.component.fields.a.of.min_variance", 0.5)]  # fmt: skip
    settings = effective(path, options)
    assert settings["fit"] == {
        "grid": "auto", "max_iter": 9, "tol": 1e-6, "init": "auto", "starts": 1, "seed": 3, "impossible": "error",
        "backend": "auto", "max_time": "auto", "require_convergence": False, "tune": False,
        "pipelined": "auto",
    }  # fmt: skip
    assert settings["model"]["components"] == 4
    assert settings["model"]["component"]["fields"]["a"]["of"]["min_variance"] == 0.5
    assert settings["output"]["dir"] == str(tmp_path / "runs" / "here")


def test_paths_of_the_file_are_relative_to_it_and_those_of_options_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "here.toml"
    path.write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert effective(path, [])["data"]["path"] == str(tmp_path / "sub" / "x.csv")
    assert effective(path, [("--data y.csv", "data.path", "y.csv")])["data"]["path"] == str(tmp_path / "y.csv")


@pytest.mark.parametrize(
    "option, says",
    [
        (("fit.max_itr", 1), "has no key 'max_itr'; did you mean 'max_iter'?"),
        (("fit", 1), "fit is a table; name a key of it"),
        (("fit.tol.x", 1), "fit.tol = {'x': 1} is neither"),
        (("fit..tol", 1), "is not a key such as fit.max_iter"),
        (("fit tol", 1), "is not a key such as fit.max_iter"),
        (("speed.x", 1), "no table [speed]"),
        (("model.components.x", 1), "model.components = 2 is not a table"),
    ],
)
def test_option_errors_name_the_option(run_file, option, says):
    key, value = option
    with pytest.raises(ModelError) as refused:
        effective(run_file(GOOD), [("-o what", key, value)])
    assert says in str(refused.value)
    assert str(refused.value).startswith("-o what: ")


@pytest.mark.parametrize(
    "text, value",
    [("5", 5), ("1e-3", 1e-3), ("true", True), ("none", "none"), ("2x3", "2x3"), ('"5"', "5"), ("[1, 2]", [1, 2]),
     ("{type = 'gaussian'}", {"type": "gaussian"}), ("kmeans++", "kmeans++"), ("1\nb = 2", "1\nb = 2")],
)  # fmt: skip
def test_values_are_toml_and_texts_may_go_without_quotes(text, value):
    assert parse_value("-o", text) == value


def test_a_table_with_an_error_is_not_taken_for_a_text():
    with pytest.raises(ModelError, match="not TOML"):
        parse_value("-o", "{type = gaussian}")


def test_keys_reach_into_lists_and_quoted_names():
    settings = {"model": {"components": [{"type": "gaussian"}, {"type": "gaussian"}]}}
    place(settings, split_key("model.components.1.mean", "-o"), 2.0, "-o")
    assert settings["model"]["components"][1] == {"type": "gaussian", "mean": 2.0}
    with pytest.raises(ModelError, match="has the numbers 0 to 1, not '2'"):
        place(settings, split_key("model.components.2.mean", "-o"), 2.0, "-o")
    assert split_key('model.fields."a.b".of', "-o") == ["model", "fields", "a.b", "of"]


def test_the_effective_run_file_reproduces_the_settings(run_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = effective(DEMO, [("a", "fit.tol", "none"), ("b", "fit.cut", ""), ("c", "fit.grid", [2, 3])])
    assert first["fit"]["grid"] == "2x3"
    again = effective(run_file(to_toml(first)), [])
    assert again == first
    assert list(again["fit"]) == list(first["fit"])


def test_numbers_survive_toml_to_the_last_bit():
    values = [0.1, math.pi, 1e-300, 5e-324, 1.7976931348623157e308]
    assert tomllib.loads(to_toml({"v": values}))["v"] == values


def test_the_example_is_the_packaged_demo(request):
    examples = request.config.rootpath / "examples"
    for name in ("penguins.toml", "penguins.csv"):
        assert (examples / name).read_bytes() == (DEMO.parent / name).read_bytes()
    assert read(examples / "penguins.toml")["data"]["path"] == str(examples / "penguins.csv")


def test_the_readme_names_every_key_and_option(request):
    text = (request.config.rootpath / "README.md").read_text()
    for setting in SETTINGS:
        assert f"`{setting.key}`" in text
    for option in (name for action in parser(True)._actions for name in action.option_strings):
        assert option in ("-h", "--help") or option in text, option


def test_data_in_the_place_of_a_run_file_are_recognised(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ModelError, match=r"x.csv: a run file is needed; data go with --data"):
        read(tmp_path / "x.csv")
