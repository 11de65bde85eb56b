"""Topic models, and how what a run counted is compared with what was planned for its grid."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from bags import TREES

from mixle_mpi import Mixture, Resources
from mixle_mpi.execution.choose import observed
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.models.topic_model import TopicModel
from mixle_mpi.planning.balance import plan_on
from mixle_mpi.planning.payload import in_run

GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (3, 2), (1, 4), (4, 4)]
# model, and the node that is cut
MODELS = {
    "topics with a prior": "", "asymmetric alpha": "", "mixes": "", "topics beside a number": "words",
    "mixture of topics": "component_*/words", "mixture of mixes": "component_*/words",
}  # fmt: skip


def mismatches(name: str, shape: tuple[int, int], found: list) -> list[str]:
    """What (coordinates, result) of all ranks counted otherwise than planned, in words.

    How many rounds documents took is the run's own count; all that follows from it is the plan's.
    """
    make, model = TREES[name]
    cut, (d, m), data = MODELS[name], shape, make()
    n, result = len(data), found[0][1]
    topics = next(node for node in model.walk() if isinstance(node, TopicModel))
    members = model.num_components if isinstance(model, Mixture) else 1
    bound = load(data, model, serial_grid()).model
    given = observed(bound, n) | {"rounds": {"": 0.0}}
    plan = plan_on(bound, Resources.local(d * m), n_data=n, shape=shape, cut=cut if m > 1 else None, given=given)
    passes, wrong = result.counts.passes, []

    def compare(what: str, counted, planned) -> None:
        if counted != planned:
            wrong.append(f"{what}: counted {counted}, planned {planned}")

    sent = in_run(plan.extra["payload"], passes, result.n_iter)
    if m > 1 and topics.dirichlet:
        sent["model"]["bytes"] += 8 * sum(r.counts.token_rounds + r.counts.document_rounds for _, r in found)
        sent["model"]["messages"] += sum(r.counts.round_messages for _, r in found) - passes * d * m
    for axis, sums in sent.items():
        compare(f"{axis} bytes", sum(r.payload[axis].bytes for _, r in found), sums["bytes"])
        compare(f"{axis} messages", sum(r.payload[axis].messages for _, r in found), sums["messages"])
        compare(f"{axis} objects", sum(r.payload[axis].objects for _, r in found), 0)
    documents = [row["words"] if isinstance(row, dict) else row for row in data]
    if not topics.dirichlet:  # one round: the words of all documents, on each shard that has topics of them
        distinct = sum(len(set(words)) for words in documents)
        for at, r in found:
            own = r.counts.token_rounds
            compare(f"words on {at}", own if d == 1 else 0, passes * members * distinct if d == 1 else 0)
    for row in range(d):
        rounds = {r.counts.token_rounds for at, r in found if at[0] == row}
        compare(f"different words times rounds on data shard {row}", len(rounds), 1)
    return wrong
