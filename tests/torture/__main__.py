"""Hard times, as one command: python tests/torture [--quick] [--only NAME].

It kills, fills disks, turns the clock, damages files, starves and crowds, and writes what came of it to
docs/results/torture.md. It needs Linux and a C compiler; a red line names the seed by which it comes back.
"""

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]
PAGE = ROOT / "docs" / "results" / "torture.md"

from torture.warm import Row  # noqa: E402 (the path comes first)

ELSEWHERE = """
## What else there is, and what there is not

- Hostile downloads (web pages, cut and stalled bodies, redirects, wrong digests) are tested by `make test`,
  in `tests/data/test_fetch.py`; hostile names and values in reports in `tests/report`; exported C under
  sanitizers in `tests/export/test_c.py`.
- Not reached: a network that is called with NaN or Inf should raise, naming layer and step. It does not look:
  of soft spikes NaN comes out for that sample, and a binary neuron does not fire. Every reader refuses such
  values, so none comes from a dataset; to look at each batch would cost time in every step.
- Temperatures below 0.1, the least that is learned by default, are not among the extreme currents.
- Out of memory and 100 kills on a GPU: not run here, where there is none. The same code halves a stack there,
  on `torch.OutOfMemoryError`.
- 32 writers of 10,000 rows for ten minutes, and a day's soak: not run. An hour's soak is an option:
  `python tests/torture --only soak --soak 3600`.
- Stores and checkpoints of every released version: there is one version so far.
- pip-audit asks a service on the network, which is not done here; hashes, licences and the bill of materials
  are in `requirements/release.txt`, `docs/licences.md` and `docs/sbom.cdx.json`.
- Archives are unpacked by the Python that runs this; other versions are not tried.
"""


def with_faults() -> None:
    """Start this program again with the library of faults loaded before libc."""
    folder = tempfile.mkdtemp(prefix="ultralif-faults-")
    library = Path(folder) / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "ULTRALIF_CACHE": f"{folder}/cache"}
    code = subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment).returncode
    shutil.rmtree(folder)
    sys.exit(code)


def warm_up() -> None:
    """Import and load what every victim needs, and train nothing."""
    import torch

    from torture.victims import TINY
    from ultralif.ops import native
    from ultralif.training.build import build_networks
    from ultralif.training.feed import load_data
    from ultralif.training.job import Job

    torch.set_num_threads(1)
    device = torch.device("cpu")
    native.library()
    Job.begin([TINY], build_networks([TINY], device), load_data(TINY, device), device)


def battery(base: Path, seed: int, quick: bool, soak: float) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the parts by name; each gives one row or several."""
    from torture import changes, crowd, fuzz, hostile, limits, power, readers, replay, victims, warm

    rng = random.Random(seed)  # noqa: S311 (it draws damage, not secrets)
    faults, few = warm.Faults(), 20 if quick else 1
    kills = {"training": 500 // few, "sweep": 300 // few, "export": 200 // few}
    yield "kill", lambda: victims.sigkill(base, rng, kills)
    yield "signals", lambda: limits.signals(base, rng, 100 // few)
    yield "disk", lambda: victims.disk(base, faults, 200 // few)
    yield "clock", lambda: victims.clock(base, faults, rng, 20 // few or 1)
    yield "checkpoints", lambda: victims.damaged_checkpoints(base, rng, 200 // few)
    yield "power", lambda: replay.power_failures(base, rng, 20, 5)
    yield "outage", lambda: power.power_failures(base, faults, rng, 2, few)
    yield "changes", lambda: changes.every_change(base, faults, few)
    yield "commands", lambda: fuzz.commands(base, rng, 10_000 // few)
    yield "runs", lambda: fuzz.run_folders(base, rng, 10_000 // few)
    yield "readers", lambda: readers.mutations(base, rng, 10_000 // few)
    yield "hostile", lambda: hostile.files(base)
    yield "archives", lambda: hostile.archives(base, rng)
    yield "writers", lambda: crowd.writers(base, rng, 32, 60 // few or 1)
    yield "folder", lambda: crowd.one_folder(base, 200 // few)
    yield "caches", lambda: crowd.caches(base, rng, 50 // few or 1)
    yield "extremes", lambda: limits.extreme_inputs(rng, 2000 // few)
    yield "nan", lambda: limits.not_finite(base)
    yield "memory", lambda: limits.out_of_memory(base)
    yield "configs", lambda: limits.fuzzed_configs(rng, 10_000 // few, 100 // few)
    if os.geteuid() == 0:  # who may become somebody else
        yield "readonly", lambda: program("alone.py", "readonly", base, seed, 0)
    for name in ("fresh", "ranks", "ray"):
        yield name, lambda name=name: program("cluster.py", name, base, seed, few)
    if soak:
        yield "soak", lambda: program("alone.py", "soak", base, seed, soak)


def program(name: str, part: str, base: Path, seed: int, amount: float) -> Row:
    """Run a part in a process of its own, which has no faults, and torch only if it imports it."""
    script, folder = Path(__file__).with_name(name), base / part
    base.chmod(0o755)
    folder.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    words = [sys.executable, str(script), part, str(folder), str(seed), str(amount)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def page(rows: list[list[str]], seed: int) -> str:
    """Return the table as Markdown."""
    reached = sum(row[4] == "yes" for row in rows)
    minutes = sum(float(row[5]) for row in rows) / 60
    lines = [
        "# Hard times",
        "",
        f"`make torture` on {platform.machine()} with {os.cpu_count()} cores (shared), Python "
        f"{platform.python_version()}, seed {seed}: {reached} of these {len(rows)} bars reached in "
        f"{minutes:.0f} minutes. A line may be of a later call: `--only NAME` renews those of a part.",
        "",
        "| test | size | bar | found | reached | s |",
        "|---|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n" + ELSEWHERE


def cells(row: Row, seconds: float) -> list[str]:
    """Return a line of the table, each cell as one line of text."""
    values = (row.test, row.size, row.bar, row.found, "yes" if row.reached else "**no**", f"{seconds:.0f}")
    return [" ".join(value.replace("|", "/").split()) for value in values]


def known() -> list[list[str]]:
    """Return the lines of the table as it is."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in rows[1:] if len(row) == 6]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything, and write no page")
    parser.add_argument(
        "--only", default="", help="run the part of this name, and put its lines into the page"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--soak", type=float, default=0.0, help="also work for so many seconds on end; 3600")
    given = parser.parse_args()
    if "ultralif-faults" not in os.environ.get("LD_PRELOAD", ""):
        with_faults()
    warnings.simplefilter("ignore")
    warm_up()
    from torture.victims import train
    from torture.warm import run

    rows, good = {}, True
    memory = Path("/dev/shm")  # noqa: S108 (a disk would only be slow: kills do not lose what was written)
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ultralif-torture-", dir=where) as folder:
        if given.only not in ("", "kill"):
            run(lambda: train(Path(folder) / "training"))  # to which others compare
        for name, part in battery(Path(folder), given.seed, given.quick, given.soak):
            if given.only not in ("", name):
                continue
            last = time.monotonic()
            found = part()
            for row in found if isinstance(found, Iterator) else [found]:
                now = time.monotonic()
                rows[row.test] = cells(row, now - last)
                good = good and row.reached
                print(
                    f"{'ok ' if row.reached else 'NO '} {row.test}: {row.found} ({now - last:.0f} s)",
                    flush=True,
                )
                last = now
    if given.only:
        rows = {row[0]: row for row in known()} | rows
    if not given.quick:
        PAGE.write_text(page(list(rows.values()), given.seed))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
