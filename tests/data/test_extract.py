"""Archives: what is sound is unpacked and summed, what is not is refused without a trace outside."""

import hashlib
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.dataset_files import make_tar
from ultralif.data.fetch import Limits, extract
from ultralif.data.files import SUMS
from ultralif.errors import InputError


def make_zip(path: Path, members: list[tuple[str, bytes | str | None]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name + ("/" if content is None else ""))
            info.compress_type = zipfile.ZIP_DEFLATED
            if isinstance(content, str):
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
                content = content[1:].encode()
            archive.writestr(info, content or b"")
    return path


MAKERS = {"tar.gz": make_tar, "zip": make_zip}
SOUND = [("a", None), ("a/b", None), ("a/b/one.bin", b"1" * 100), ("two.bin", b""), ("./a/three", b"3")]


@pytest.mark.parametrize("suffix", MAKERS)
def test_files_are_unpacked_and_summed(tmp_path, suffix):
    archive = MAKERS[suffix](tmp_path / f"x.{suffix}", SOUND)
    folder = tmp_path / "out"
    folder.mkdir()
    extract(archive, folder)
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    assert files.pop(SUMS).read_text().splitlines() == [
        f"{hashlib.sha256(files[name].read_bytes()).hexdigest()}  {name}"
        for name in ("a/b/one.bin", "two.bin", "a/three")
    ]
    assert files["a/b/one.bin"].read_bytes() == b"1" * 100
    assert not files["a/b/one.bin"].stat().st_mode & stat.S_ISUID


def test_a_plain_tar_with_a_root_entry_is_unpacked(tmp_path):
    archive = make_tar(tmp_path / "x.tar", [("./", None), ("./a", b"1")], "w:")
    (tmp_path / "out").mkdir()
    extract(archive, tmp_path / "out")
    assert (tmp_path / "out" / "a").read_bytes() == b"1"


HOSTILE = {
    "parent": [("../evil", b"x")],
    "parent inside": [("a/../../evil", b"x")],
    "absolute": [("/ultralif-evil", b"x")],
    "drive": [("C:evil", b"x")],
    "backslash": [("a\\..\\..\\evil", b"x")],
    "control": [("a\nb", b"x")],
    "long": [("a/" * 600 + "b", b"x")],
    "twice": [("a", b"x"), ("a", b"y")],
    "case": [("name", b"x"), ("NAME", b"y")],
    "normal form": [("\u00e9", b"x"), ("e\u0301", b"y")],
    "file as folder": [("a", b"x"), ("a/b", b"y")],
    "folder as file": [("a/b", b"y"), ("a", b"x")],
    "sums": [(SUMS, b"x")],
    "symlink": [("a", "2/etc/passwd")],
    "symlink then file": [("a", "2/tmp"), ("a/evil", b"x")],
}
ONLY_TAR = {
    "hard link": [("a", "1/etc/passwd")],
    "device": [("a", "3")],
    "pipe": [("a", "6")],
}


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [(suffix, kind) for suffix in MAKERS for kind in HOSTILE] + [("tar.gz", kind) for kind in ONLY_TAR],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_archives_are_refused(tmp_path, suffix, kind):
    archive = MAKERS[suffix](tmp_path / f"x.{suffix}", (HOSTILE | ONLY_TAR)[kind])
    folder = tmp_path / "deep" / "out"
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match=rf"x\.{suffix} contains .*delete it and download it again"):
        extract(archive, folder)
    outside = {p for p in tmp_path.rglob("*") if not p.is_relative_to(folder)}
    assert outside == {archive, tmp_path / "deep"}
    assert not Path("/ultralif-evil").exists()


@pytest.mark.parametrize("suffix", MAKERS)
@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(size=10_000), "more bytes"),
        (Limits(ratio=5), "more bytes"),
        (Limits(count=3), "more than 3 files"),
    ],
    ids=["size", "ratio", "count"],
)
def test_bombs_are_stopped_early(tmp_path, suffix, limits, says):
    members = [(f"{i}", b"\0" * 1_500_000) for i in range(6)]
    archive = MAKERS[suffix](tmp_path / f"x.{suffix}", members)
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(InputError, match=says):
        extract(archive, folder, limits)
    written = sum(path.stat().st_size for path in folder.rglob("*"))
    assert written <= (4_500_000 if says == "more than 3 files" else 2_000_000)


def test_a_sparse_member_is_refused(tmp_path):
    header = bytearray(tarfile.TarInfo("hole").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = b"77777777777\0"  # the size it claims to have
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "x.tar"
    path.write_bytes(bytes(header) + bytes(1024))
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError):
        extract(path, tmp_path / "out")


@pytest.mark.parametrize("suffix", MAKERS)
@given(data=st.data())
def test_damaged_archives_give_an_input_error_or_files(tmp_path_factory, suffix, data):
    place = tmp_path_factory.mktemp("fuzz")
    archive = MAKERS[suffix](place / f"x.{suffix}", SOUND)
    content = bytearray(archive.read_bytes())
    del content[data.draw(st.integers(0, len(content))) :]
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    archive.write_bytes(content)
    (place / "out").mkdir()
    try:
        extract(archive, place / "out")
    except InputError as error:
        assert f"x.{suffix}" in str(error)
    assert {p.name for p in place.iterdir()} == {f"x.{suffix}", "out"}


def long_headers(kind: str) -> list[tarfile.TarInfo]:
    """Members whose headers are gigabytes of names or attributes, or thousands that add up."""
    big = "x" * (8 << 20)
    info = tarfile.TarInfo("a")
    if kind == "long name":
        info.name = big
    elif kind == "attributes":
        info.pax_headers = {"comment": big}
    elif kind == "link name":
        info.type, info.linkname = tarfile.SYMTYPE, big
    else:
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a"}
        info.size = len(big)
    return [info]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
@pytest.mark.parametrize("kind", ["long name", "attributes", "link name", "map of holes"])
def test_headers_have_a_limit(kind: str, form: int, tmp_path: Path) -> None:
    """Headers are read into memory: a gigabyte of them in a small archive must not be."""
    import io
    import tracemalloc

    if form == tarfile.GNU_FORMAT and kind in ("attributes", "map of holes"):
        pytest.skip("only PAX has them")
    archive = tmp_path / "x.tar.gz"
    with tarfile.open(archive, "w:gz", format=form) as tar:
        for info in long_headers(kind):
            tar.addfile(info, io.BytesIO(b"1\n" * (info.size // 2)) if info.size else None)
    (tmp_path / "out").mkdir()
    tracemalloc.start()
    with pytest.raises(InputError, match=r"headers far larger|not a valid archive|not a plain file"):
        extract(archive, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20 and not any((tmp_path / "out").iterdir())
