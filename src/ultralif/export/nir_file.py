"""Read a NIR file in a separate process, because HDF5 is not safe with untrusted files.

`read` starts this file as a script. The script reads only the groups and datasets that NIR needs, only from
the file itself, and returns plain arrays. If the HDF5 library crashes on the file, or needs too much memory,
only the script ends.
"""

import io
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np

__all__ = ["NirGraph", "NirNode", "read"]

FIELDS = (
    *("weight", "bias", "tau", "r", "v_leak", "v_threshold", "v_reset", "threshold"),
    *("stride", "padding", "dilation", "groups", "kernel_size"),
    *("tau_mem", "tau_syn", "w_in", "scale", "delay", "shape"),
)
MAX_NODES = 1000
MAX_DEPTH = 8
MAX_BYTES = 1 << 29
MAX_MEMORY = 4 << 30
MAX_SECONDS = 60


@dataclass(frozen=True)
class NirNode:
    """A node of a graph: its type in NIR, and its arrays."""

    kind: str
    arrays: dict[str, np.ndarray[Any, Any]]
    metadata: dict[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class NirGraph:
    """A NIR graph."""

    nodes: dict[str, NirNode]
    edges: list[tuple[str, str]]
    metadata: dict[str, float | str]


def read(path: Path) -> NirGraph:
    """Return the graph in a file, or raise a ValueError that explains why it cannot be read."""
    try:
        done = subprocess.run(  # noqa: S603 (it runs this file)
            [sys.executable, "-I", __file__, str(path)], capture_output=True, timeout=MAX_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"reading it took more than {MAX_SECONDS} s") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()
        raise ValueError(reason[-1] if done.returncode == 3 and reason else "the HDF5 library cannot read it")
    with np.load(io.BytesIO(done.stdout), allow_pickle=False) as arrays:
        content = json.loads(str(arrays["content"]))
        nodes = {
            name: NirNode(
                kind, {key: arrays[f"{number}.{key}"] for key in keys}, {} if kind == "Pass" else metadata
            )
            for number, (name, kind, keys, metadata) in enumerate(content["nodes"])
        }
    return NirGraph(nodes, [(a, b) for a, b in content["edges"]], content["metadata"])


class _Unreadable(Exception):
    """The file does not have the expected structure."""


class _Reader:
    """Reads groups and datasets of an open file, and sums their sizes."""

    def __init__(self) -> None:
        self.bytes = 0

    def child(self, group: Any, name: str) -> Any:
        """Return a member of a group that is stored in this file; None if there is none."""
        link = group.get(name, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise _Unreadable(f"{name!r} is a link to elsewhere")
        return group[name]

    def group(self, parent: Any, name: str) -> Any:
        """Return a member that is a group."""
        found = self.child(parent, name)
        if not isinstance(found, h5py.Group):
            raise _Unreadable(f"there is no group {name!r} where NIR requires one")
        if len(found) > MAX_NODES:
            raise _Unreadable(f"{name!r} has {len(found)} members, more than {MAX_NODES}")
        return found

    def array(self, parent: Any, name: str) -> np.ndarray[Any, Any] | None:
        """Return a member that is a dataset of numbers or text; None if there is none."""
        found = self.child(parent, name)
        if found is None:
            return None
        if not isinstance(found, h5py.Dataset) or found.shape is None:
            raise _Unreadable(f"{name!r} is not an array")
        if found.external or found.is_virtual:
            raise _Unreadable(f"{name!r} is stored in another file")
        text = h5py.check_string_dtype(found.dtype) is not None
        if not text and found.dtype.kind not in "fiub":
            raise _Unreadable(f"{name!r} holds {str(found.dtype)!r}, not numbers")
        self.bytes += found.size * (256 if text else found.dtype.itemsize)
        if self.bytes > MAX_BYTES:
            raise _Unreadable(f"its arrays take more than {MAX_BYTES >> 20} MiB")
        return np.asarray(found.asstr()[()] if text else found[()])

    def text(self, parent: Any, name: str) -> str:
        """Return a member that is one string."""
        found = self.array(parent, name)
        if found is None or found.shape != () or found.dtype.kind not in "OU":
            raise _Unreadable(f"there is no text {name!r} where NIR requires one")
        return str(found)

    def metadata(self, parent: Any) -> dict[str, float | str]:
        """Return the numbers and strings of a node's metadata; other entries are left out."""
        if self.child(parent, "metadata") is None:
            return {}
        group = self.group(parent, "metadata")
        found: dict[str, float | str] = {}
        for key in group:
            value = self.array(group, key)
            if value is not None and value.shape == ():
                found[str(key)] = str(value) if value.dtype.kind in "OU" else float(value)
        return found


def _content(file: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return a file's arrays, and their description as JSON."""
    reader = _Reader()
    top = reader.group(file, "node")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    nodes: list[Any] = []
    edges = _graph(reader, top, "", nodes, arrays)
    content = {"nodes": nodes, "edges": edges, "metadata": reader.metadata(top)}
    return {**arrays, "content": np.array(json.dumps(content))}


def _graph(reader: _Reader, top: Any, prefix: str, nodes: list[Any], arrays: dict[str, Any]) -> list[Any]:
    """Add the nodes of a graph to ``nodes``, those of its subgraphs as ``graph.node``, and return its edges.

    A subgraph's inputs and outputs become ``Pass`` nodes, to which the graph's edges connect.
    """
    if prefix.count(".") > MAX_DEPTH or len(nodes) > MAX_NODES:
        raise _Unreadable("its graphs have too many nodes, or are nested too deeply")
    group = reader.group(top, "nodes")
    edges: list[Any] = []
    ends: dict[str, dict[str, list[str]]] = {}  # the inputs and outputs of every subgraph
    for name in group:
        node, full = reader.group(group, name), f"{prefix}{name}"
        kind = reader.text(node, "type")
        if kind == "NIRGraph":
            first = len(nodes)
            edges += _graph(reader, node, f"{full}.", nodes, arrays)
            inner = [each for each in nodes[first:] if each[0].count(".") == full.count(".") + 1]
            ends[full] = {
                side: [each[0] for each in inner if each[3] == side] for side in ("Input", "Output")
            }
            continue
        keys = []
        for key in FIELDS:
            found = reader.array(node, key)
            if found is not None:
                text = found.dtype.kind not in "fiub"
                arrays[f"{len(nodes)}.{key}"] = found.astype(str) if text else found
                keys.append(key)
        passes = bool(prefix) and kind in ("Input", "Output")
        nodes.append((full, "Pass" if passes else kind, keys, kind if passes else reader.metadata(node)))
    found = reader.array(top, "edges")
    if found is None or found.ndim != 2 or found.shape[1] != 2 or len(found) > MAX_NODES:
        raise _Unreadable("there is no list 'edges' of pairs where NIR requires one")
    for source, target in found.astype(str).tolist():
        sources = ends.get(prefix + source, {"Output": [prefix + source]})["Output"]
        targets = ends.get(prefix + target, {"Input": [prefix + target]})["Input"]
        edges += [(a, b) for a in sources for b in targets]
    return edges


def _main(path: str) -> int:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError):  # not available on every system, so the sizes are checked as well
        pass
    try:
        with h5py.File(path, "r") as file:
            content = _content(file)
    except _Unreadable as error:
        sys.stderr.write(f"{error}\n")
        return 3
    except (OSError, MemoryError, RuntimeError, ValueError, KeyError, TypeError, UnicodeError):
        sys.stderr.write("it is not a valid HDF5 file\n")
        return 3
    np.savez(cast(Any, sys.stdout.buffer), **cast(Any, content))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
