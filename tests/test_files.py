"""Files that are damaged or hostile are refused with their name; files are written whole or not at all."""

import gzip
import os
import sys
from pathlib import Path

import pytest

from ultralif.errors import InputError
from ultralif.files import (
    BadFile,
    drafted,
    gunzip,
    inside,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    visible,
    write_file,
)


def test_only_regular_files_of_a_limited_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"abc")
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it: an ordinary open would wait for ever
    assert read_bytes(tmp_path / "good", 3) == b"abc"
    assert read_bytes(tmp_path / "good", 1 << 60) == b"abc"  # memory is taken for the file, not for the limit
    if sys.platform == "linux":  # a file that tells no size
        assert b"Name:" in read_bytes(Path("/proc/self/status"), 1 << 60)
        with pytest.raises(BadFile, match="larger than 9 bytes"):
            read_bytes(Path("/proc/self/status"), 9)
    for name, why in {
        "good": "has 3 bytes, but the limit for such files is 2",
        "zero": "not a regular file",
        "pipe": "not a regular file",
        ".": "not a regular file",
        "absent": "No such file",
        "nul\0": "cannot be read",
    }.items():
        with pytest.raises(BadFile, match=why) as error:
            read_bytes(tmp_path / name, 2)
        assert str(tmp_path) in str(error.value) and "\0" not in str(error.value)


def test_a_link_leads_nowhere_but_inside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("s")
    (root / "file").write_text("f")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "in").symlink_to("file")
    (root / "loop").symlink_to("loop")
    assert read_bytes(root / "in", 9) == b"f"
    assert inside(root, "a/../file") == (root / "file").resolve()
    for name in ("out", "../secret", "..", ".", "", "/etc/hostname", str(tmp_path), "a/../../secret", "x\0"):
        with pytest.raises(BadFile):
            inside(root, name)
    for name in ("in", "out", "loop"):
        with pytest.raises(BadFile):
            read_bytes(root / name, 9, links=False)


def test_text_and_json_that_are_not(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for content, why in {
        b"\xff\xfe": "not valid JSON|UTF-8",
        b"[" * 100_000: "levels",
        b"[" * 40 + b"]" * 40: "levels",
        b"{": "not valid JSON",
        b"1" * 5000: "not valid JSON",
    }.items():
        path.write_bytes(content)
        with pytest.raises(BadFile, match=why) as error:
            read_json(path)
        assert str(path) in str(error.value)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadFile, match="UTF-8"):
        read_text(path)
    assert parse_json("[" * 32 + "]" * 32, "it") is not None


def test_gzip_has_a_limit() -> None:
    bomb = gzip.compress(bytes(1 << 20))
    assert len(gunzip(bomb + gzip.compress(b"x"), "it", 1 << 21)) == (1 << 20) + 1
    for content, why in {bomb: "unpacks to more", bomb[:50]: "cut off", b"none": "not gzip"}.items():
        with pytest.raises(BadFile, match=why):
            gunzip(content, "it", 1 << 16)


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.onnx"
    write_file(path, "old")
    with pytest.raises(ZeroDivisionError), drafted(path) as draft:
        draft.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(path.parent.iterdir()) == [path]


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        write_file(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo()


def test_control_characters_are_visible() -> None:
    shown = visible("\x1b[31m\a\u202e\udc80\n\x9b2Jü")
    assert shown == r"\x1b[31m\x07\u202e\udc80\n\x9b2Jü" and shown.isprintable()
