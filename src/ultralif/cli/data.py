"""``ultralif data``: list, fetch, check and show datasets."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ultralif.cli.output import check_place, echo, print_json, print_table
from ultralif.cli.parse import Actions
from ultralif.errors import InputError

if TYPE_CHECKING:
    from ultralif.data import Dataset, Split
    from ultralif.data.table import Spec

__all__ = ["COMMAND"]

Partition = Literal["tonic", "spikingjelly"]


def list_(data_dir: Path | None = None, json: bool = False) -> None:
    """List the datasets and their folders on this machine.

    Args:
        data_dir: a folder to search first.
        json: print one JSON document.
    """
    from ultralif.data.table import DATASETS

    described = [_describe(spec, data_dir) for spec in DATASETS.values()]
    if json:
        print_json(described)
        return
    rows = [
        (
            entry["name"],
            "x".join(map(str, entry["shape"])),
            str(entry["classes"]),
            " / ".join(f"{size:,}" for size in entry["sizes"]),
            entry["folder"] or ("built in" if entry["built_in"] else f"ultralif data get {entry['name']}"),
        )
        for entry in described
    ]
    print_table(("name", "shape", "classes", "train / test", "where"), rows)


def info(name: str, /, data_dir: Path | None = None, json: bool = False) -> None:
    """Describe a dataset: its sizes, source, files and checksums, and the folders that are searched.

    Args:
        name: the dataset.
        data_dir: a folder to search first.
        json: print one JSON document.
    """
    from ultralif.data.files import roots
    from ultralif.data.table import find_spec

    spec = find_spec(name)
    described = _describe(spec, data_dir) | {
        "title": spec.title,
        "class_names": list(spec.class_names),
        "normalization": spec.normalization,
        "source": spec.source,
        "licence": spec.licence,
        "splits": {form.split: list(form.sizes or spec.sizes) for form in spec.forms if form.split},
        "files": [dataclasses.asdict(remote) for remote in spec.remotes],
        "searched": [str(root) for root in roots(data_dir)] if spec.forms else [],
    }
    if json:
        print_json(described)
        return
    for key, value in described.items():
        if key == "files":
            for remote in spec.remotes:
                echo(f"{'file':14} {remote.file}  {remote.digest}")
                for url in remote.urls:
                    echo(f"{'':14}   {url}")
        elif key == "splits":
            for split, sizes in value.items():
                echo(f"{'split':14} {split}: {sizes[0]:,} / {sizes[1]:,}")
        elif value not in (None, []):
            shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
            echo(f"{key:14} {shown}")


def get(name: str, /, data_dir: Path | None = None) -> None:
    """Download a dataset, unless it is already on this machine; resume an interrupted download.

    Args:
        name: the dataset.
        data_dir: folder to write to; by default $ULTRALIF_DATA or the user's cache.
    """
    from ultralif.data.fetch import get as install
    from ultralif.data.table import find_spec

    spec = find_spec(name)
    if not spec.forms:
        echo(f"{spec.name} needs no download")
        return
    with _progress() as progress:
        found = install(spec, data_dir, progress)
    echo(f"{spec.name} is in {found.folder}")


def verify(
    name: str, /, data_dir: Path | None = None, split: Partition | None = None, json: bool = False
) -> None:
    """Read every file of a dataset and compare it with the known digests.

    Args:
        name: the dataset.
        data_dir: a folder to search first.
        split: for dvs-gesture: tonic or spikingjelly; by default, whichever is found.
        json: print one JSON document.
    """
    from ultralif.data.dataset import verify as check
    from ultralif.data.table import find_spec

    spec = find_spec(name)
    if not spec.forms:
        raise InputError(f"{spec.name} has no files to verify; it is generated when it is loaded")
    report = check(spec, data_dir, split)
    if json:
        print_json({"name": spec.name} | dataclasses.asdict(report) | {"folder": str(report.folder)})
        return
    how = (
        f"{report.digests:,} digests"
        if report.digests
        else "the structure of every file; no digests are known"
    )
    echo(
        f"{spec.name} in {report.folder} is intact: {report.sizes[0]:,} + {report.sizes[1]:,} samples, {how}"
    )


def draw_sample(
    name: str,
    /,
    index: int = 0,
    out: Path = Path("sample.png"),
    test: bool = False,
    timesteps: int | None = None,
    split: Partition = "tonic",
    data_dir: Path | None = None,
) -> None:
    """Draw a sample: an image, or events over time.

    Args:
        name: the dataset.
        index: position of the sample in its set.
        out: the image file.
        test: take the sample from the test set instead of the training set.
        timesteps: number of time bins for events.
        split: for dvs-gesture, tonic or spikingjelly.
        data_dir: a folder to search first.
    """
    from ultralif.data import load

    check_place(out)
    dataset = load(name, timesteps, data_dir, split=split)
    _draw(dataset, dataset.test if test else dataset.train, index, out)
    echo(f"wrote {out}")


COMMAND: Actions = {"list": list_, "info": info, "get": get, "verify": verify, "show": draw_sample}


def _describe(spec: "Spec", data_dir: Path | None) -> dict[str, Any]:
    from ultralif.data.files import find

    found = find(spec, data_dir)
    return {
        "name": spec.name,
        "shape": list(spec.shape),
        "classes": spec.classes,
        "sizes": list((found and found.form.sizes) or spec.sizes),
        "events": spec.is_events,
        "built_in": not spec.forms,
        "folder": str(found.folder) if found else None,
        "form": found.form.kind if found else None,
    }


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a download progress function: a bar on a terminal, otherwise one line per 10 %."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    seen: dict[str, Any] = {}
    if not console.is_terminal:

        def line(name: str, done: int, total: int | None) -> None:
            tenth = 10 * done // total if total else 0
            if seen.get(name) != tenth:
                seen[name] = tenth
                of = f" of {total / 1e6:.1f}" if total else ""
                console.print(f"{name}: {done / 1e6:.1f}{of} MB", highlight=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:

        def bar(name: str, done: int, total: int | None) -> None:
            if name not in seen:
                seen[name] = bars.add_task(name, total=total)
            bars.update(seen[name], completed=done, total=total)

        yield bar


def _draw(dataset: "Dataset", split: "Split", index: int, path: Path) -> None:
    """Draw one sample into an image file, in the format given by the file extension."""
    from ultralif import plot
    from ultralif.report.canvas import new_figure, save_figure
    from ultralif.report.figures import events_figure

    if not 0 <= index < len(split):
        raise InputError(f"index must be between 0 and {len(split) - 1}, got {index}")
    sample = split.batch([index]).cpu()
    label = int(split.labels[index])
    title = f"{dataset.name}, sample {index}, class {label}: {dataset.class_names[label]}"
    if split.is_events and len(dataset.shape) == 3:
        events_figure(path, sample[:, 0], title)
        return
    figure, axes = new_figure(1)
    if split.is_events:
        plot.raster(sample[:, 0], axes=axes[0, 0])
        axes[0, 0].set_ylabel("channel")
    else:
        axes[0, 0].imshow(sample[0].permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=255)
        axes[0, 0].set_axis_off()
    figure.suptitle(title)
    save_figure(figure, path)
