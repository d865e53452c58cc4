"""Damaged files of every kind that is read: thousands of mutations each, guided by what they reach.

A mutation that makes a reader run lines which none before it did is kept, and mutated further.
"""

import io
import json
import lzma
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import safetensors.torch
import torch

from data import dataset_files as files
from torture.mutate import mutated
from torture.warm import Row, lanes
from ultralif.cli.arguments import read_config
from ultralif.cli.sources import load_network, save_network
from ultralif.data.files import parse_npy
from ultralif.data.readers import gesture, images, nmnist
from ultralif.errors import InputError, JobError
from ultralif.export import to_nir
from ultralif.nn import Network
from ultralif.training import RunConfig, Store
from ultralif.training.checkpoint import read_folder, write_folder

SLOW = 5.0
"""Seconds that no file of a few kilobytes may take."""


class Coverage:
    """The lines of this library that a call runs."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if "/ultralif/" not in frame.f_code.co_filename:
            return None
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self.trace


def fuzz(
    read: Callable[[bytes], object], seeds: list[bytes], rng: random.Random, count: int
) -> dict[str, Any]:
    """Read mutations; whatever is raised but a clear error is a bug, and so is one that takes too long."""
    corpus, seen, bugs = list(seeds), set(), []
    refused = slowest = 0.0
    for _ in range(count):
        data = mutated(rng.choice(corpus), rng.choice(corpus), rng)
        coverage, began = Coverage(), time.perf_counter()
        sys.settrace(coverage.trace)
        try:
            read(data)
        except (InputError, JobError):
            refused += 1
        except Exception as error:
            bugs.append(f"{type(error).__name__}: {error} on {data[:40]!r}")
        finally:
            sys.settrace(None)
        slowest = max(slowest, time.perf_counter() - began)
        if not coverage.lines <= seen:
            seen |= coverage.lines
            corpus.append(data)
    return {"refused": int(refused), "kept": len(corpus) - len(seeds), "bugs": bugs, "slowest": slowest}


def plain_readers(base: Path) -> dict[str, tuple[Callable[[bytes], object], list[bytes]]]:
    """Return each reader that runs in this process, and sound files for it."""
    rng, here = np.random.default_rng(0), Path("damaged")
    pixels = rng.integers(0, 256, (2, 3, 32, 32))
    times = np.sort(rng.integers(0, 300_000, 60))
    events_ = files.gesture_events(rng, 60, 10**6)
    array = io.BytesIO()
    np.save(array, events_.astype(np.float64))
    x, y = rng.integers(0, 34, (2, 60))
    recording = files.nmnist(x, y, rng.integers(0, 2, 60), times)
    table = b"class,startTime_usec,endTime_usec\n1,0,5000\n11,5000,9000\n"
    config = json.dumps(RunConfig(anneal=(2, 0.1)).to_dict()).encode()
    return {
        "idx": (lambda d: images.parse_idx(d, here), [files.idx(rng.integers(0, 256, (3, 4, 4)))]),
        "CIFAR binary": (
            lambda d: images.parse_cifar(d, here),
            [np.concatenate([np.zeros((2, 1)), pixels.reshape(2, -1)], 1).astype(np.uint8).tobytes()],
        ),
        "N-MNIST .bin": (lambda d: nmnist.parse_nmnist([d], [here], [0]), [recording]),
        "N-MNIST in bins": (
            lambda d: list(nmnist.parse_binned(d, here)),
            [files.binned([{1: 2, 700: 1}, {5: 3}], [1, 2])],
        ),
        "arrays in N-MNIST's bins": (
            lambda d: list(nmnist.parse_binned(lzma.compress(d, preset=0), here)),
            [lzma.decompress(files.binned([{1: 2, 700: 1}, {5: 3}], [1, 2]))],
        ),
        "AEDAT 3.1": (lambda d: gesture.parse_aedat(d, here), [files.aedat(events_, packet=20)]),
        "gesture tables": (lambda d: gesture.parse_labels(d, here), [table]),
        "gesture .npy": (lambda d: gesture.parse_recording(d, here), [array.getvalue()]),
        ".npy": (lambda d: parse_npy(d, here), [array.getvalue()]),
        "config JSON": (lambda d: _file(base / "config.json", d, read_config), [config]),
        "config TOML": (
            lambda d: _file(base / "config.toml", d, read_config),
            [b'neuron = "LIF"\nhidden = [8, 8]\neps = 0.5\n'],
        ),
        "network safetensors": _network_reader(base),
        "index SQLite": _index_reader(base),
    }


def _file(path: Path, data: bytes, read: Callable[[Path], object]) -> object:
    path.write_bytes(data)
    return read(path)


def _network_reader(base: Path) -> tuple[Callable[[bytes], object], list[bytes]]:
    path = base / "net.safetensors"
    save_network(Network((4, 5, 3)), {"sizes": [4, 5, 3], "neuron": "UltraLIF"}, path)
    return lambda d: _file(path, d, lambda p: load_network(str(p))), [path.read_bytes()]


def _index_reader(base: Path) -> tuple[Callable[[bytes], object], list[bytes]]:
    (source,) = base.glob("training/index.sqlite")
    store = Store(base / "damaged-index")
    store.root.mkdir(mode=0o700)
    sound = source.read_bytes()

    def read(data: bytes) -> object:
        for left in store.root.iterdir():
            left.unlink()
        store.index.write_bytes(data)
        return store.rows()

    return read, [sound]


def mutations(base: Path, rng: random.Random, count: int, processes: int) -> Iterator[Row]:
    """Read mutations of every kind of file."""
    bar = "a clear error or a sound reading; 0 other errors, 0 crashes"
    for name, (read, seeds) in plain_readers(base).items():
        for seed in seeds:
            read(seed)  # sound files are read
        found = fuzz(read, seeds, rng, count)
        said = f"{found['refused']} refused, {found['kept']} led to new lines, {len(found['bugs'])} bugs, "
        said += f"slowest {found['slowest']:.2f} s" + "".join(f"; {bug[:150]}" for bug in found["bugs"][:2])
        yield Row(f"mutated {name}", f"{count:,}", bar, said, not found["bugs"] and found["slowest"] < SLOW)
    yield hashed(base, rng, count)
    for name, sound in (("SHD", _sound_shd(base)), ("NIR", _sound_nir(base))):
        yield in_children(name, sound, rng, count, processes)


def hashed(base: Path, rng: random.Random, count: int) -> Row:
    """Mutate the files of a folder with a manifest: not one may be read as if it were sound."""
    folder = base / "hashed"
    tensors = {"weight": torch.arange(12.0).view(3, 4)}
    write_folder(folder, "model", tensors, {"config": {"a": 1}, "history": [1, 2]})
    sound = {path: path.read_bytes() for path in folder.iterdir()}
    expected = read_folder(folder)
    silent, bugs = 0, []
    for _ in range(count):
        path = rng.choice(sorted(sound))
        data = mutated(sound[path], safetensors.torch.save(tensors), rng)
        path.write_bytes(data)
        try:
            found = read_folder(folder)
            silent += found.documents != expected.documents or found.file != expected.file
        except JobError:
            pass
        except Exception as error:
            bugs.append(f"{type(error).__name__}: {error}")
        path.write_bytes(sound[path])
    bar = "0 silent loads, 0 other errors"
    said = f"{silent} silent, {len(bugs)} bugs" + "".join(f"; {bug[:150]}" for bug in bugs[:2])
    return Row("mutated run folders", f"{count:,}", bar, said, not silent and not bugs)


def _sound_shd(base: Path) -> Path:
    path = base / "sound.h5"
    files.shd(path, files.shd_spikes(np.random.default_rng(0), 3), [0, 1, 2])
    return path


def _sound_nir(base: Path) -> Path:
    path = base / "sound.nir"
    to_nir(Network((3, 4, 2), "LIF"), path, mode="hard")
    return path


def in_children(name: str, sound: Path, rng: random.Random, count: int, processes: int) -> Row:
    """Read mutations with HDF5, a child for each, as the library does: a crash there harms nobody."""
    script = Path(__file__).with_name("hdf5_children.py")
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    seeds = [str(rng.randrange(2**31)) for _ in range(processes)]

    def share(lane: int) -> dict[str, int]:
        part = len(range(lane, count, processes))
        words = [sys.executable, str(script), name.lower(), str(sound), seeds[lane], str(part)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        return json.loads(done.stdout or "{}")

    codes = sum(map(Counter, lanes(share, processes)), Counter())
    read, refused = codes["0"], codes["1"] + codes["3"]
    crashed = sum(number for code, number in codes.items() if int(code) < 0)
    bugs = count - read - refused - crashed
    bar = "read or refused; a crash stays in the reader's own process"
    said = f"{read} read, {refused} refused, {crashed} crashed in their own process, {bugs} bugs"
    return Row(f"mutated {name} (HDF5)", f"{count:,}", bar, said, not bugs)
