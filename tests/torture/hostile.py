"""Files made to harm: archives that climb out of their folder, pickles that act, headers that lie."""

import contextlib
import gzip
import io
import json
import os
import pickle
import random
import resource
import sqlite3
import stat
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import h5py
import numpy as np
import torch

import ultralif as ul
from data.dataset_files import make_tar
from torture.warm import Row, files_of, run
from ultralif.cli import export
from ultralif.cli.arguments import read_config
from ultralif.cli.sources import load_network
from ultralif.data.fetch import extract
from ultralif.data.files import SUMS, parse_npy
from ultralif.data.readers import gesture, images, shd
from ultralif.errors import InputError, JobError
from ultralif.export import from_nir
from ultralif.training import Store
from ultralif.training.checkpoint import read_folder
from ultralif.training.store import VERSION

MEMORY = 300 << 20
"""Bytes that reading a small file may take."""


class Harm:
    """What a pickle does when it is loaded: it leaves a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.system, (f"touch {self.canary}",)


def hostile_files(canary: Path) -> dict[str, bytes]:
    """Return files that would leave the canary if anything in them were run, or that lie about their size."""
    harm = Harm(canary)
    found = {f"pickle, protocol {p}": pickle.dumps({"data": harm, "labels": [0]}, p) for p in range(6)}
    for p in range(6):
        found[f"bare pickle, protocol {p}"] = pickle.dumps(harm, p)
    array = io.BytesIO()
    np.save(array, np.array([harm], object), allow_pickle=True)
    found["npy of objects"] = array.getvalue()
    archive = io.BytesIO()
    np.savez(archive, gap=np.array([harm], object))
    found["npz of objects"] = archive.getvalue()
    for name, value in (("tensor", {"a": torch.zeros(2), "b": harm}), ("module", harm)):
        saved = io.BytesIO()
        torch.save(value, saved)
        found[f"torch.save of a {name}"] = saved.getvalue()
    old = io.BytesIO()
    torch.save({"b": harm}, old, _use_new_zipfile_serialization=False)
    found["torch.save of old"] = old.getvalue()
    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for name, header, data in (
        ("huge shape", {"a": {**tensor, "shape": [10**12]}}, bytes(8)),
        ("huge offsets", {"a": {**tensor, "data_offsets": [0, 10**15]}}, bytes(8)),
        ("overlapping offsets", {"a": tensor, "b": {**tensor, "data_offsets": [4, 12]}}, bytes(12)),
        ("negative offsets", {"a": {**tensor, "data_offsets": [-8, 0]}}, bytes(8)),
        ("unknown type", {"a": {**tensor, "dtype": "PICKLE"}}, bytes(8)),
        (
            "code for metadata",
            {"__metadata__": {"network": "__import__('os').abort()"}, "a": tensor},
            bytes(8),
        ),
        (
            "sizes of 10**12",
            {"__metadata__": {"network": json.dumps({"sizes": [10**12] * 3})}, "a": tensor},
            bytes(8),
        ),
    ):
        text = json.dumps(header).encode()
        found[f"safetensors, {name}"] = struct.pack("<Q", len(text)) + text + data
    found["safetensors, header of 2**60"] = struct.pack("<Q", 2**60) + b"{}"
    found["safetensors, header of 99 MB"] = struct.pack("<Q", 99_000_000) + b"{" + b" " * 1000
    deep = b"[" * 100_000
    found |= {
        "deep JSON": deep,
        "deep JSON object": b'{"a":' * 100_000,
        "long number": b'{"seed": ' + b"9" * 10**6 + b"}",
    }
    found["deep TOML"] = b"a = " + deep
    found["npy, shape of 10**18"] = _npy(b"'<f8'", b"(1000000000, 1000000000)")
    found["npy, negative shape"] = _npy(b"'<f8'", b"(-1,)")
    found["npy, type of objects"] = _npy(b"'|O'", b"(1,)")
    found["npy, code for header"] = _npy(b"'<f8'", b"(__import__('os').abort(),)")
    found["idx, 2**32 everything"] = b"\0\0\x08\x03" + b"\xff" * 12
    found["idx, 255 axes"] = b"\0\0\x08\xff" + b"\0\0\0\1" * 255
    found["pickle, memo of 2**31"] = b"\x80\x02]r\xff\xff\xff\x7f."
    found["pickle, string of 2**31"] = b"\x80\x02T\xff\xff\xff\x7f."
    found["pickle, self-referring"] = b"\x80\x02]q\x01h\x01a."
    found["pickle, a million marks"] = b"\x80\x02" + b"(" * 10**6 + b"."
    found["gzip, 64 MiB of zeros"] = gzip.compress(bytes(64 << 20), 1)
    found["JSON, 100,000 keys"] = json.dumps(dict.fromkeys(map(str, range(10**5)), 0)).encode()
    found["text in UTF-16"] = json.dumps({"seed": 1}).encode("utf-16")
    found["nothing"] = b""
    return found | dict(_hdf5()) | dict(_sqlite())


def _sqlite() -> Iterator[tuple[str, bytes]]:
    """Yield databases that would compute without end, or act, when an index is read."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n"
    acting = "CREATE TABLE runs (id TEXT); CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END"
    for name, script in (("endless view", f"CREATE VIEW runs AS {endless}"), ("trigger", acting)):
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.executescript(f"{script}; PRAGMA user_version = {VERSION}")
            yield f"SQLite, {name}", database.serialize()


def _npy(kind: bytes, shape: bytes) -> bytes:
    header = b"{'descr': " + kind + b", 'fortran_order': False, 'shape': " + shape + b"}\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8)


def _hdf5() -> Iterator[tuple[str, bytes]]:
    """Yield HDF5 files that lead elsewhere or claim to be huge."""

    def made(build: Callable[[h5py.File], object]) -> bytes:
        file = io.BytesIO()
        with h5py.File(file, "w") as h5:
            build(h5)
        return file.getvalue()

    yield (
        "HDF5, external link",
        made(lambda h: h.__setitem__("labels", h5py.ExternalLink("/etc/passwd", "/"))),
    )
    yield "HDF5, soft link", made(lambda h: h.__setitem__("spikes", h5py.SoftLink("/")))
    yield "HDF5, link to itself", made(lambda h: h.__setitem__("node", h["/"]))
    yield (
        "HDF5, external storage",
        made(lambda h: h.create_dataset("labels", (8,), "u1", external=[("/etc/passwd", 0, 8)])),
    )
    yield "HDF5, 10**15 labels", made(lambda h: h.create_dataset("labels", (10**15,), "u2", chunks=(1000,)))
    yield (
        "HDF5, pickled object",
        made(lambda h: h.__setitem__("node/version", np.void(pickle.dumps(Harm(Path("x")))))),
    )


def hostile_readers(base: Path) -> dict[str, Callable[[bytes], object]]:
    """Return everything that reads a file, as functions of its bytes."""
    here = base / "hostile"

    def placed(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def reader(data: bytes) -> object:
            here.mkdir(exist_ok=True)
            (here / name).write_bytes(data)
            return read(here / name)

        return reader

    def vouched(file: str) -> Callable[[bytes], object]:
        """A run's folder whose manifest an attacker made to fit."""

        def reader(data: bytes) -> object:
            folder = here / "run"
            folder.mkdir(parents=True, exist_ok=True)
            config = json.dumps(ul.RunConfig().to_dict()).encode()
            contents = {
                "config.json": config,
                "model.safetensors": b"",
                "result.json": b'{"epochs": 1}',
                file: data,
            }
            for name, content in contents.items():
                (folder / name).write_bytes(content)
            sums = {name: sha256(content).hexdigest() for name, content in contents.items()}
            manifest = {"format": 1, "ultralif": "0", "sha256": sums}
            (folder / "manifest.json").write_text(json.dumps(manifest))
            read_folder(folder)
            return ul.load(folder)

        return reader

    return {
        "CIFAR": lambda data: images.parse_cifar(data, here),
        "idx": lambda data: images.parse_idx(data, here),
        "npy": lambda data: parse_npy(data, here),
        "gesture": lambda data: gesture.parse_recording(data, here),
        "network": placed("net.safetensors", lambda path: load_network(str(path))),
        "run parameters": vouched("model.safetensors"),
        "run config": vouched("config.json"),
        "config JSON": placed("config.json", read_config),
        "config TOML": placed("config.toml", read_config),
        "recorded inputs": placed("inputs.npy", lambda path: export._recorded(path, (4,), False)),
        "index": placed("index.sqlite", lambda path: Store(path.parent).rows()),
        "SHD": placed("shd.h5", shd.read_shd),
        "NIR": placed("net.nir", from_nir),
    }


def files(base: Path) -> Row:
    """Give every hostile file to every reader."""
    canary = base / "canary"
    readers, given = hostile_readers(base), hostile_files(canary)
    tried, slowest, most, unclear = 0, 0.0, 0, []
    usual = int(run(_peak).message)
    for kind, read in readers.items():
        for name, data in given.items():
            if kind in ("SHD", "NIR") and "HDF5" not in name and "protocol 2" not in name:
                continue  # what is not HDF5 it does not even open, and each takes a process
            began = time.perf_counter()
            ended = run(lambda read=read, data=data: _tried(read, data))
            slowest = max(slowest, time.perf_counter() - began)
            tried += 1
            if ended.code:
                unclear.append(
                    f"{kind} on {name}: {ended.message.strip().splitlines()[-1][:120] or ended.code}"
                )
            else:
                most = max(most, int(ended.message) - usual)
    said = f"code run: {canary.exists()}; {len(unclear)} unclear errors; "
    said += f"at most {max(0, most) >> 20} MiB, {slowest:.1f} s"
    said += "".join(f"; {line}" for line in unclear[:3])
    bar = f"0 code run, 0 errors but clear ones, below {MEMORY >> 20} MiB"
    good = not canary.exists() and not unclear and most < MEMORY
    return Row(
        "hostile files", f"{len(given)} files, {len(readers)} readers, {tried} readings", bar, said, good
    )


def _tried(read: Callable[[bytes], object], data: bytes) -> int:
    with contextlib.suppress(InputError, JobError):
        read(data)
    return _peak()


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def archives(base: Path, rng: random.Random) -> Row:
    """Unpack archives that must not be: nothing may appear outside of the folder, nor be run or linked."""
    names = [
        "../evil",
        "a/../../evil",
        "/ultralif-evil",
        "a/../../../ultralif-evil",
        "..\\evil",
        "C:\\evil",
        "C:evil",
    ]
    names += [
        "\\\\host\\evil",
        "a\nb",
        "..",
        "a/..",
        SUMS,
        SUMS.lower(),
        "x" * 2000,
        "aux:stream",
        "\u202eevil",
    ]
    cases: dict[str, list[tuple[str, bytes | str | None]]] = {f"named {n[:20]!r}": [(n, b"x")] for n in names}
    cases |= {f"folder {n[:20]!r}": [(n, None)] for n in names[:4]}
    cases |= {
        "symbolic link": [("a", "2/etc/passwd")],
        "link, then through it": [("a", "2/tmp"), ("a/evil", b"x")],
        "hard link": [("a", "1/etc/passwd")],
        "character device": [("a", "3")],
        "block device": [("a", "4")],
        "pipe": [("a", "6")],
        "twice": [("a", b"x"), ("a", b"y")],
        "twice by case": [("a", b"x"), ("A", b"y")],
        "twice by accents": [("\u00e9", b"x"), ("e\u0301", b"y")],
        "file, then folder": [("a", b"x"), ("a/b", b"y")],
        "folder, then file": [("a/b", b"x"), ("a", b"y")],
    }
    tried = good = 0
    bad: list[str] = []
    for form in ("tar.gz", "tar", "zip"):
        for name, members in {**cases, "bomb": [("zeros", bytes(80 << 20))]}.items():
            folder = base / "archives" / f"{form}-{tried}"
            (folder / "out").mkdir(parents=True, exist_ok=True)
            archive = folder / f"x.{form}"
            if (name == "bomb" and form == "tar") or not _packed(archive, form, members):
                continue  # plain tar does not compress
            before = _outside(folder)
            ended = run(lambda archive=archive, folder=folder: extract(archive, folder / "out"))
            tried += 1
            clean = _outside(folder) == before and not any(
                path.is_symlink() or path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
                for path in (folder / "out").rglob("*")
            )
            good += ended.code == 2 and clean
            if not (ended.code == 2 and clean):
                bad.append(f"{form}, {name}: {ended.code} {ended.message[:80]}")
    bar = "refused with a message, 0 bytes outside of the folder"
    found = f"{good}/{tried}" + "".join(f"; {line}" for line in bad[:3])
    return Row(
        "malicious archives", str(tried), bar, found, good == tried and not Path("/ultralif-evil").exists()
    )


def _packed(archive: Path, form: str, members: list[tuple[str, bytes | str | None]]) -> bool:
    """Write an archive; False where the form cannot say it."""
    try:
        if form != "zip":
            make_tar(archive, members, "w:gz" if form == "tar.gz" else "w:")
            return True
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, content in members:
                info = zipfile.ZipInfo(name + ("/" if content is None else ""))
                info.compress_type = zipfile.ZIP_DEFLATED
                if isinstance(content, str):
                    kinds = {"2": stat.S_IFLNK, "3": stat.S_IFCHR, "4": stat.S_IFBLK, "6": stat.S_IFIFO}
                    if content[0] not in kinds:
                        return False
                    info.external_attr = (kinds[content[0]] | 0o777) << 16
                    content = content[1:].encode()
                zipped.writestr(info, content or b"")
        with zipfile.ZipFile(archive) as zipped:  # the writer corrects some names
            return [info.filename.rstrip("/") for info in zipped.infolist()] == [name for name, _ in members]
    except (ValueError, tarfile.TarError):
        return False


def _outside(folder: Path) -> set[str]:
    return {name for name in files_of(folder) if not name.startswith("out/")} | {
        str(path) for path in folder.parent.parent.glob("*evil*")
    }
