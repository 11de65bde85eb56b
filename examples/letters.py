"""Letters of a text as a hidden Markov model: python examples/letters.py [states ...], by default 2 to 6.

The states are told nothing of vowels and consonants, and find them: the printed tables show the letters that each state
writes. The text is the Declaration of Independence of the United States (1776, in the public domain), abridged; every
paragraph is a sequence of small letters, with "_" between words. `letters.jsonl`, which `letters.toml` reads, is
written beside it: a line for each paragraph.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np

from mixle_mpi import Categorical, HiddenMarkov, optimize

TEXT = Path(__file__).with_name("independence.txt")
VOWELS = "aeiou"
SHOWN = 0.02  # letters that a state writes less often are left out


def paragraphs() -> list[list[str]]:
    """The letters of each paragraph."""
    found = TEXT.read_text(encoding="utf-8").lower().split("\n\n")
    return [list(re.sub("[^a-z]+", "_", text).strip("_")) for text in found]


def table(model: HiddenMarkov) -> list[str]:
    """What each state writes, the likeliest letters first, and where it goes."""
    lines = []
    for state, (emission, row) in enumerate(zip(model.emissions, model.transition)):
        p = dict(zip(emission.levels, emission.probabilities))
        letters = sorted((letter for letter in p if p[letter] >= SHOWN), key=lambda letter: -p[letter])
        vowels = sum(p.get(v, 0.0) for v in VOWELS)
        then = ", ".join(f"{k} {100 * row[k]:.0f} %" for k in np.argsort(-row)[:3] if row[k] >= 0.05)
        lines.append(f"  state {state}: {100 * vowels:3.0f} % vowels, {100 * p['_']:3.0f} % spaces; then {then}")
        lines.append("    " + "  ".join(f"{letter} {100 * p[letter]:.0f}" for letter in letters))
    return lines


def main() -> None:
    data = paragraphs()
    out = TEXT.with_name("letters.jsonl")
    out.write_text("".join(json.dumps(own) + "\n" for own in data), encoding="utf-8")
    print(f"{len(data)} paragraphs, {sum(map(len, data))} letters; written to {out}")
    for states in map(int, sys.argv[1:] or "23456"):
        result = optimize(data, HiddenMarkov(Categorical(), states), max_iter=500, tol=1e-6, starts=4, seed=1)
        print(f"\n{states} states: {-result.log_likelihood / sum(map(len, data)) / np.log(2):.3f} bits a letter")
        print("\n".join(table(result.model)))


if __name__ == "__main__":
    main()
