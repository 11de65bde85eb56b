"""Machine files: the nodes of a cluster and what connects them, in TOML or JSON.

    name = "cluster"
    flops_per_second = 40e9          # of a matrix product on one core of throughput 1
    call_seconds = 0.5e-6            # of a NumPy call with hardly any work
    [[nodes]]                        # kinds of node, in rank order
    count = 4096
    cores = 64                       # workers of a node
    memory = "256GB"                 # of a node; its cores share it evenly
    throughput = 1.0
    [network]                        # absent keys are unknown, and cost nothing in plans
    latency_within = 1e-6            # seconds a message
    latency_between = 2e-6
    bandwidth_within = 5e9           # bytes a second of one rank, when all ranks send at once
    bandwidth_between = 4e8
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from mixle_mpi.contract.errors import ModelError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NETWORK = ("latency_within", "latency_between", "bandwidth_within", "bandwidth_between")
RATES = ("flops_per_second", "call_seconds")
TOP = ("name", *RATES, "nodes", "network")
NODE = ("count", "cores", "memory", "throughput", "kind", "name")
MOST_BYTES, MOST_RANKS = 1 << 60, 1 << 24  # of a rank or a node; of a machine
LARGEST = 1e24  # of any number in a machine file; its inverse is the smallest
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def parse_bytes(value: Any, where: str) -> int:
    """A number of bytes, also as "4GB" (10^9) or "4GiB" (2^30). Raises ModelError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value <= MOST_BYTES:
        return int(value)
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][+]?[0-9]+)?)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if match is not None and match[2].upper() in UNITS and match[1].count(".") <= 1 and match[1][:1] != ".":
        size = float(match[1]) * UNITS[match[2].upper()]
        if 1 <= size <= MOST_BYTES:
            return int(size)
    raise ModelError(f"{where} = {value!r} is not a number of bytes such as \"4GB\"")


def read_machine(path: Path) -> dict[str, Any]:
    """The tables of a machine file, checked. Raises ModelError, OSError."""
    text = path.read_bytes()
    try:
        tables = json.loads(text) if path.suffix == ".json" else tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path}: not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    if not isinstance(tables, dict):
        raise ModelError(f"{path}: a table is needed")
    _known(tables, TOP, str(path))
    network, nodes = tables.get("network", {}), tables.get("nodes")
    if not isinstance(network, dict) or not isinstance(nodes, list) or not nodes:
        raise ModelError(f"{path}: a machine has a list [[nodes]], and perhaps a table [network]")
    _known(network, NETWORK, f"{path}: [network]")
    for name, value in [*network.items(), *((name, tables.get(name, 1.0)) for name in RATES)]:
        _positive(value, f"{path}: {name}")
    for node in nodes:
        if not isinstance(node, dict):
            raise ModelError(f"{path}: {node!r} is not a table of [[nodes]]")
        _known(node, NODE, f"{path}: [[nodes]]")
        for name in ("count", "cores"):
            value = node.setdefault(name, 1)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ModelError(f"{path}: {name} = {value!r} is not a whole number >= 1")
        _positive(node.setdefault("throughput", 1.0), f"{path}: throughput")
        if "memory" in node:
            node["memory"] = parse_bytes(node["memory"], f"{path}: memory")
            if node["memory"] < node["cores"]:
                raise ModelError(f"{path}: memory = {node['memory']} bytes for {node['cores']} cores")
    places = sum(n["count"] * n["cores"] for n in nodes)
    if places > MOST_RANKS:
        raise ModelError(f"{path}: {places} cores are more than the {MOST_RANKS} that can be planned for")
    return tables


def _known(table: dict, names: Sequence[str], where: str) -> None:
    for name in table:
        if name not in names:
            raise ModelError(f"{where}: there is no key {name!r}; {nearest(name, names)}")


def _positive(value: Any, where: str) -> None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (known and 1.0 / LARGEST <= value <= LARGEST):
        shown = repr(value) if len(repr(value)) <= 40 else "..."
        raise ModelError(f"{where} = {shown} is not a positive number between {1.0 / LARGEST:g} and {LARGEST:g}")


def write_machine(path: Path, tables: dict[str, Any]) -> None:
    """Write tables of a machine as TOML, or as JSON when the name ends so."""
    if path.suffix == ".json":
        text = json.dumps(tables, indent=1)
    else:
        import tomli_w

        text = tomli_w.dumps(tables)
    path.write_text(text)


def compressed(devices: Sequence) -> list[dict[str, Any]]:
    """Kinds of node of devices (`DeviceSpec`) in rank order, alike nodes as one with a count."""
    nodes = []
    for _, group in groupby(enumerate(devices), lambda d: d[1].node or d[0]):
        for kind, alike in groupby(group, lambda d: (d[1].kind, d[1].memory_bytes, d[1].throughput)):
            nodes.append((kind, len(list(alike))))
    result = []
    for ((kind, memory, throughput), cores), same in groupby(nodes):
        alone = {"memory": memory * cores} if memory is not None else {}
        result.append({"count": len(list(same)), "cores": cores, "throughput": throughput, "kind": kind} | alone)
    return result
