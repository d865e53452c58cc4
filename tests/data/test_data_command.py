"""The command: what it prints, what it writes, how it fails."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from data.dataset_files import idx
from ultralif.cli import COMMANDS, main
from ultralif.data import files as finding


@pytest.fixture(autouse=True)
def lonely(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finding, "_SHARED", tmp_path / "usr")
    monkeypatch.setitem(COMMANDS, "data", "datasets")


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(["data", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_list_shows_every_dataset_and_where_it_lies(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0
    lines = {line.split()[0]: line.rstrip() for line in out.splitlines()[1:]}
    assert lines["digits"].endswith("built in")
    assert lines["shd"].endswith("ultralif data get shd")
    assert "60,000 / 10,000" in lines["mnist"]


def test_json_is_one_document(capsys):
    _, out, err = run(capsys, "list", "--json")
    listed = {entry["name"]: entry for entry in json.loads(out)}
    assert listed["n-mnist"]["shape"] == [2, 34, 34]
    assert err == ""
    _, out, _ = run(capsys, "info", "cifar10", "--json")
    described = json.loads(out)
    assert described["files"][0]["digest"] == "md5:c32a1d4ab5d03f1284b67883e8d87530"
    assert described["normalization"][0] == [0.4914, 0.4822, 0.4465]


def test_info_names_files_checksums_and_folders(capsys, tmp_path):
    _, out, _ = run(capsys, "info", "shd", "--data-dir", str(tmp_path / "mine"))
    for part in ("shd_test.h5.zip  md5:1503a5064faa34311c398fb0a1ed0a6f", "https://", str(tmp_path / "mine")):
        assert part in out


def test_get_reuses_what_is_there(capsys, tmp_path):
    folder = tmp_path / "usr" / "fashion-mnist"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(b""))
    code, out, err = run(capsys, "get", "fashion-mnist")
    assert (code, out, err) == (0, f"fashion-mnist is in {folder}\n", "")
    assert run(capsys, "get", "randman")[1] == "randman needs no download\n"


def test_verify_names_the_file_that_is_wrong(capsys, tmp_path):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(np.zeros((2, 28, 28))))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.zeros(2)))
    code, out, err = run(capsys, "verify", "mnist")
    assert (code, out) == (2, "")
    assert f"{folder}/train-images-idx3-ubyte has the wrong content" in err
    assert len(err.splitlines()) == 1


def test_a_file_that_is_missing_is_named(capsys, tmp_path):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((2, 28, 28))))
    for part in ("train", "t10k"):
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.zeros(2)))
    code, _, err = run(capsys, "verify", "mnist")
    assert code == 1
    assert f"mnist is in {folder}, but t10k-images-idx3-ubyte is missing" in err


def test_verify_accepts_the_real_thing(capsys, shared):
    code, out, _ = run(capsys, "verify", "mnist", "--data-dir", str(shared), "--json")
    assert code == 0
    assert json.loads(out)["digests"] == 4


@pytest.mark.parametrize(
    "argv",
    [
        ["show", "randman", "--index", "3"],
        ["show", "digits", "--test"],
        ["show", "n-mnist", "--timesteps", "3"],
    ],
)
def test_show_draws_a_picture(capsys, tmp_path, monkeypatch, argv):
    matplotlib = pytest.importorskip("matplotlib.image")
    if argv[1] == "n-mnist":
        small_nmnist(tmp_path, monkeypatch)
    code, out, err = run(capsys, *argv, "--out", "a.png")
    assert (code, out) == (0, "wrote a.png\n"), err
    pixels = matplotlib.imread("a.png")
    assert pixels.shape[0] > 200
    assert pixels.std() > 0.01, "an empty picture"


def small_nmnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from data.dataset_files import nmnist
    from ultralif.data.table import DATASETS

    t = np.arange(300) * 1000
    for half in ("Train", "Test"):
        for label in range(10):
            (tmp_path / "data" / "n-mnist" / half / str(label)).mkdir(parents=True)
        path = tmp_path / "data" / "n-mnist" / half / "4" / "00001.bin"
        path.write_bytes(nmnist(t // 9000, t // 10_000, t // 1000 % 2, t))
    monkeypatch.setitem(DATASETS, "n-mnist", dataclasses.replace(DATASETS["n-mnist"], sizes=(1, 1)))


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["show", "randman", "--index", "2000"], 2, "index must be between 0 and 1999, got 2000"),
        (["show", "randman", "--out", "no/such/a.png"], 2, "the folder no/such does not exist"),
        (["show", "randman", "--out", "a.docx"], 2, "must end in .png, .svg or .pdf, got 'a.docx'"),
        (["show", "shd"], 1, "shd is not on this machine"),
        (["info", "mnst"], 2, "dataset 'mnst' is not known; did you mean mnist"),
        (["verify", "digits"], 2, "digits has no files to verify"),
        (["verify", "dvs-gesture", "--split", "mine"], 2, "--split must be one of"),
        (["get"], 2, "ultralif data get"),
        (["fetch"], 2, "fetch"),
    ],
)
def test_errors_are_one_line(capsys, argv, code, says):
    found, out, err = run(capsys, *argv)
    assert (found, out) == (code, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_listing_needs_no_torch():
    import subprocess

    script = (
        "import sys; from ultralif.cli import main; main(['data', 'list']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
