"""More topics of a million words than fit on one rank: `python -m benchmarks.vocabulary [--limit 6GB] [--documents N]`.

200 topics over 1000000 words are 1.6 GB wherever all of them are held once. Documents are written (a sparse matrix,
20000 documents, about 5000000 non-zeros, every word among them); `fit --dry-run` plans for one rank and for 1 x 4 under
the limit; then `mpirun -n 4 python -m mixle_mpi.fit` runs on 1 x 4. There each rank is told of its limit as Slurm
tells it (SLURM_MEM_PER_CPU), and held to it by the system (RLIMIT_DATA): one byte more is a MemoryError. Printed are
the memory of the heaviest rank as planned, and the peaks of all ranks as measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from mixle_mpi.planning.machine import parse_bytes

DOCUMENTS, VOCABULARY, TOPICS = 20_000, 1_000_000, 200
THEMES, DRAWN = 5, 210  # themes that a document mixes, and words drawn from them
RANKS = 4
TIME_LIMIT = 3600  # seconds of the fit: a pass takes minutes where four ranks share two cores
SLURM_UNIT = 1 << 20  # bytes of what Slurm calls a megabyte
CROWDED = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT": "1",
           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip
RUN = """[data]
path = "documents.npz"
[model]
type = "latent_dirichlet_allocation"
topics = {topics}
vocabulary = {vocabulary}
topic_prior = 0.01
[fit]
max_iter = {iterations}
tol = "none"
[output]
checkpoint_every = 1000.0
"""
LIMITED = """import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2)
sys.argv[:2] = ["fit"]
runpy.run_module("mixle_mpi.fit", run_name="__main__")
"""


def make(rng: np.random.Generator, documents: int) -> sp.csr_matrix:
    """Documents (documents, words) of counts. Every word is dealt to one document; the others are drawn from
    the words of a few themes, word w being of theme w modulo `TOPICS`, the first ones of each theme most often."""
    own = np.array_split(rng.permutation(VOCABULARY), documents)
    themes = rng.integers(TOPICS, size=(documents, THEMES))
    of = themes[np.arange(documents)[:, None], rng.integers(THEMES, size=(documents, DRAWN))]
    drawn = of + TOPICS * (VOCABULARY // TOPICS * rng.random((documents, DRAWN)) ** 3).astype(np.int64)
    words = np.concatenate([part for both in zip(own, drawn) for part in both])
    offsets = np.cumsum([0, *(len(part) + DRAWN for part in own)])
    made = sp.csr_matrix((np.ones(len(words)), words, offsets), (documents, VOCABULARY))
    made.sum_duplicates()
    return made


def planned(run: Path, ranks: int, limit: str) -> tuple[bool, str]:
    """Whether the plan for 1 x ranks fits, and the sentence that says so. Raises SystemExit where planning failed."""
    command = [sys.executable, "-m", "mixle_mpi.fit", str(run), "--dry-run", "--ranks", str(ranks), "--memory", limit,
               "--grid", f"1x{ranks}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    said = [line for line in done.stdout.splitlines() if "heaviest rank" in line or "oes not fit" in line]
    return done.returncode == 0, "\n    ".join(said)


def fitted(run: Path, limit: int) -> dict:
    """`result.json` of the fit on 1 x 4, each rank held to the limit."""
    launcher = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if launcher is None:
        raise SystemExit("benchmarks.vocabulary: there is no mpirun")
    out = run.parent / "out"
    command = [launcher, "-n", str(RANKS), sys.executable, "-c", LIMITED, str(limit), str(run), "--grid", f"1x{RANKS}",
               "--out", str(out), "--overwrite"]  # fmt: skip
    told = {"SLURM_MEM_PER_CPU": str(limit // SLURM_UNIT), "SLURM_CPUS_PER_TASK": "1"}
    done = subprocess.run(command, env=os.environ | CROWDED | told, capture_output=True, text=True, timeout=TIME_LIMIT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    print("\n".join("    " + line for line in done.stdout.splitlines()))
    return json.loads((out / "result.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", default="6GB", help="memory of a rank")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="fewer are quicker, and need as much memory")
    parser.add_argument("--iterations", type=int, default=2, help="EM iterations")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        documents = make(np.random.default_rng(3), options.documents)
        sp.save_npz(Path(place, "documents.npz"), documents, compressed=False)
        run = Path(place, "run.toml")
        run.write_text(RUN.format(topics=TOPICS, vocabulary=VOCABULARY, iterations=options.iterations))
        print(f"{options.documents} documents, {documents.nnz} non-zeros of {VOCABULARY} words, {TOPICS} topics; limit "
              f"{options.limit} a rank")  # fmt: skip
        del documents
        for ranks in (1, RANKS):
            fits, said = planned(run, ranks, options.limit)
            print(f"plan for 1 x {ranks}: {'fits' if fits else 'does not fit'}\n    {said}", flush=True)
        result = fitted(run, parse_bytes(options.limit, "--limit"))
        peaks = ", ".join(f"{peak / 1e6:.0f}" for peak in result["accounting"]["peak_bytes"])
        print(f"peak memory of a rank, MB: planned {result['predicted']['peak_bytes'] / 1e6:.0f}, measured {peaks}")
        print(f"log likelihoods {result['history']}")
        print(f"saved: {', '.join(f'{f.name} {f.stat().st_size / 1e6:.0f} MB' for f in Path(place, 'out').iterdir())}")


if __name__ == "__main__":
    main()
