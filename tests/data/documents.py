"""Documents in every form that bags of words are read from, and what they are encoded to."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from mixle_mpi.execution.load import load
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.bag import Bag


def bag_of(model):
    return next(node for node in model.walk() if isinstance(node, Bag))


def encoded(data, model, size=1, **options):
    """What documents are encoded to on `size` ranks, rank after rank, as plain data; data of `local` are one a rank."""

    def work(grid):
        own = data[grid.world.rank] if options.get("local") else data
        loaded = load(own, model, grid, **options)
        bag = bag_of(loaded.model)
        steps = loaded.rows.sequences[bag.sequence]
        codes, counts = steps.arrays[bag.words.slot_key], steps.arrays[bag.counts_key]
        assert codes.dtype == np.int32 and counts.dtype == np.float64 and steps.offsets.dtype == np.int64
        return np.diff(steps.offsets), codes, counts, loaded.effective, bag.words.encoding

    parts = run_on_threads(size, 1, work)
    assert len({part[3] for part in parts}) == 1
    lengths, codes, counts = (np.concatenate([part[i] for part in parts]).tolist() for i in range(3))
    encoding = parts[0][4]
    for *_, other in parts:
        assert other.levels == encoding.levels and np.array_equal(other.words, encoding.words)
    return {"lengths": lengths, "codes": codes, "counts": counts, "effective": parts[0][3],
            "words": encoding.words.tolist(), "levels": encoding.levels, "observed": encoding.observed}  # fmt: skip


def expected(documents, vocabulary):
    """The same, reckoned with dicts, of lists of (word, count); `vocabulary` a number or a list."""
    places = {word: i for i, word in enumerate(range(vocabulary) if isinstance(vocabulary, int) else vocabulary)}
    sums = []
    for document in documents:
        own = {}
        for word, count in document:
            if count > 0:
                own[places[word]] = own.get(places[word], 0.0) + count
        sums.append(dict(sorted(own.items())))
    words = sorted({word for own in sums for word in own})
    counts = [count for own in sums for count in own.values()]
    return {"lengths": [len(own) for own in sums], "codes": [words.index(word) for own in sums for word in own],
            "counts": counts, "effective": float(sum(sum(own.values()) for own in sums)), "words": words,
            "levels": () if isinstance(vocabulary, int) else tuple(vocabulary), "observed": len(counts)}  # fmt: skip


def matrix_of(documents, size):
    """Documents of numbered words as a sparse matrix; a word that comes again is an entry again."""
    rows = [i for i, document in enumerate(documents) for _ in document]
    words, counts = ([pair[k] for document in documents for pair in document] for k in (0, 1))
    return sp.coo_array((np.array(counts, float), (rows, words)), shape=(len(documents), size))


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def parquet(path, columns):
    pq.write_table(pa.table(columns), path, row_group_size=3)
    return path


def long_table(documents):
    """One row an entry, for documents that are not empty."""
    rows = [(f"d{i}", word, count) for i, document in enumerate(documents) for word, count in document]
    return {name: [row[k] for row in rows] for k, name in enumerate(("document", "word", "count"))}


def csv_of(path, columns):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values())])
    return path
