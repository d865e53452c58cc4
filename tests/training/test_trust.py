"""What differs from what a run assumes is refused or named: its data, its weights, its card, its folder."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load, save

import ultralif as ul
from ultralif.cli import main
from ultralif.errors import DataWarning, JobError
from ultralif.files import BadFile
from ultralif.training import RunConfig, Store, batches, train, zoo
from ultralif.training.evaluate import reevaluate
from ultralif.training.progress import Interrupted
from ultralif.training.store import Finished

CONFIG = RunConfig(epochs=1, timesteps=2, hidden=(16,))


def other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the labels be others, as in files that were exchanged."""
    load_, cached = batches.load, batches._load
    cached.cache_clear()

    def changed(*given: object, **options: object) -> object:
        found = load_(*given, **options)  # type: ignore[arg-type]
        train = replace(found.train, labels=found.train.labels.flip(0))
        return replace(found, train=train, checksum="0" * 64)

    monkeypatch.setattr(batches, "load", changed)
    monkeypatch.setattr(batches, "_load", cached.__wrapped__)


def test_training_does_not_resume_on_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIG.with_(epochs=50)
    steps = iter(range(40))
    with pytest.raises(Interrupted):
        train(config, runs_dir=tmp_path, stopping=lambda: 15 if next(steps, None) is None else 0)
    other_data(monkeypatch)
    with pytest.raises(JobError, match="the data of digits changed"):
        train(config, runs_dir=tmp_path)


def test_an_evaluation_on_other_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(CONFIG.with_(epochs=8), runs_dir=tmp_path).id
    reevaluate(Store(tmp_path), run)
    other_data(monkeypatch)
    with pytest.warns(DataWarning, match="trained on a different version"):
        reevaluate(Store(tmp_path), run)


def spoil(folder: Path, name: str, value: float) -> None:
    """Fill the parameters of a run, and write a manifest that says so."""
    file = folder / "model.safetensors"
    tensors = load(file.read_bytes())
    for key in tensors:
        if name in key:
            tensors[key].fill_(value)
    file.write_bytes(save(tensors))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["model.safetensors"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_weights_that_cannot_be_right(
    tmp_path: Path, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [train(CONFIG.with_(seed=seed), runs_dir=tmp_path).id for seed in (1, 2)]
    spoil(tmp_path / runs[0], "weight", value)
    words = ["--runs-dir", str(tmp_path)]
    assert main(["eval", runs[0], *words]) in (1, 2)
    assert "NaN or infinite" in capsys.readouterr().err
    assert main(["report", "--out", str(tmp_path / "r.html"), *words]) == 0, "the other run is reported"
    assert main(["analyze", "boundary", runs[0], "--out", str(tmp_path / "b.png"), *words]) in (0, 1, 2)


def test_a_constant_prediction_is_named(tmp_path: Path) -> None:
    run = train(CONFIG, runs_dir=tmp_path).id
    spoil(tmp_path / run, "weight", 0.0)
    with pytest.warns(DataWarning, match="it has learned nothing"):
        reevaluate(Store(tmp_path), run)


@pytest.mark.parametrize("spoiled", ["config", "accuracy", "run", "text", "cut", "random"])
def test_a_bad_card_or_network_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoiled: str
) -> None:
    monkeypatch.setenv("ULTRALIF_CACHE", str(tmp_path / "cache"))
    shipped = zoo._FOLDER
    card = dict(json.loads((shipped / "index.json").read_text())["mnist/lif-t1"])
    content = (shipped / card["file"]).read_bytes()
    if spoiled in card:
        del card[spoiled]
    elif spoiled == "text":
        card["accuracy"] = "x"
    else:
        content = content[:100] if spoiled == "cut" else bytes(range(256)) * 2
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "m.safetensors").write_bytes(content)
    card |= {"file": "m.safetensors", "sha256": hashlib.sha256(content).hexdigest()}
    (theirs / "index.json").write_text(json.dumps({"a/b": card}))
    with pytest.raises(BadFile, match="was not kept"):
        zoo.get_model("a/b", theirs)
    assert main(["models", "list"]) == 0


def test_a_run_that_was_removed_while_it_was_written_leaves_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(CONFIG, runs_dir=tmp_path / "a")
    found, store = Store(tmp_path / "a").read(CONFIG.id), Store(tmp_path / "b")
    finished = Finished(found.config, found.contents.tensors(), found.result, found.history)
    write = store.write_folders

    def then_removed(*given: object) -> list[tuple[object, ...]]:
        rows = write(*given)  # type: ignore[arg-type]
        store.remove(CONFIG.id)
        return rows

    monkeypatch.setattr(store, "write_folders", then_removed)
    store.write([finished])
    assert store.rows() == []


def test_a_history_of_texts_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(CONFIG, runs_dir=tmp_path)
    folder = tmp_path / CONFIG.id
    (folder / "history.json").write_text(json.dumps([{"loss": "x"}, {"loss": [1, 2], "b": 10**400}]))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["history.json"] = hashlib.sha256((folder / "history.json").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert main(["runs", "show", CONFIG.id, "--history", "--runs-dir", str(tmp_path)]) in (0, 1, 2)


def test_a_dollar_in_a_name_is_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from ultralif.report.canvas import new_figure, save_figure

    figure, axes = new_figure(1)
    axes[0, 0].set_title(r"own:$\notacommand$:1")
    assert save_figure(figure, tmp_path / "a.svg", math=False).exists()


def test_a_file_called_like_a_library_does_not_replace_it(tmp_path: Path) -> None:
    import sys

    from ultralif.cli.sources import neuron_name

    (tmp_path / "nir.py").write_text("import ultralif as ul\n\n\nclass Mine(ul.LIF):\n    pass\n")
    before = sys.modules.pop("nir", None)
    try:
        assert neuron_name(f"{tmp_path / 'nir.py'}:Mine") == "Mine"
        assert "nir" not in sys.modules
    finally:
        ul.nn.NEURONS.pop("Mine", None)
        if before is not None:
            sys.modules["nir"] = before
