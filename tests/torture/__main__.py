"""Hard times, as one command: python tests/torture [--quick] [--only NAME ...].

It kills, fills disks, turns the clock, damages files, starves and crowds, and writes what came of it to
docs/results/torture.json and the page beside it. It needs Linux and a C compiler; a red line names the seed
by which it comes back. What another machine wrote with --rows is taken over with --merge.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]

from torture.page import ROWS, known, record, save  # noqa: E402 (the path comes first)
from torture.warm import Row  # noqa: E402


def with_faults() -> None:
    """Start this program again with the library of faults loaded before libc."""
    folder = tempfile.mkdtemp(prefix="ultralif-faults-")
    library = Path(folder) / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "ULTRALIF_CACHE": f"{folder}/cache"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    code = subprocess.run([sys.executable, __file__, *sys.argv[1:]], env=environment).returncode
    shutil.rmtree(folder)
    sys.exit(code)


def warm_up() -> None:
    """Import and load what every victim needs, and train nothing."""
    import nir  # noqa: F401 (a victim would spend most of its life on these imports)
    import safetensors.torch  # noqa: F401
    import torch
    import torch.fx.experimental.symbolic_shapes

    import ultralif.cli.export
    import ultralif.cli.report
    import ultralif.cli.runs  # noqa: F401
    from torture.victims import TINY
    from ultralif.ops.cpu import build
    from ultralif.training.batches import load_data
    from ultralif.training.loop import Job
    from ultralif.training.networks import build_networks

    torch.set_num_threads(1)
    device = torch.device("cpu")
    build.library()
    Job.begin([TINY], build_networks([TINY], device), load_data(TINY, device), device)


def battery(
    base: Path, seed: int, few: int, processes: int, soak: float
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the parts by name; each gives one row or several.

    Args:
        base: a folder for whatever they write.
        seed: draws the damage.
        few: one in so many of the cases is tried.
        processes: the number of processes that share the cases of a long part.
        soak: seconds of the soak.
    """
    from torture import changes, crowd, fuzz, hostile, limits, power, readers, replay, victims, warm

    rng = random.Random(seed)  # noqa: S311 (it draws damage, not secrets)
    faults = warm.Faults()
    kills = {"training": 1000 // few, "sweep": 300 // few, "export": 200 // few}
    yield "kill", lambda: victims.sigkill(base, rng, kills)
    yield "signals", lambda: limits.signals(base, rng, 50 // few)
    yield "disk", lambda: victims.disk(base, faults, 200 // few)
    yield "clock", lambda: victims.clock(base, faults, rng, 20 // few or 1)
    yield "checkpoints", lambda: victims.damaged_checkpoints(base, rng, 2000 // few)
    yield "power", lambda: replay.power_failures(base, rng, 20, 5)
    yield "outage", lambda: power.power_failures(base, faults, seed, 2, few, processes)
    yield "changes", lambda: changes.every_change(base, faults, few, processes)
    yield "commands", lambda: fuzz.commands(base, rng, 10_000 // few, processes)
    yield "runs", lambda: fuzz.run_folders(base, rng, 10_000 // few, processes)
    yield "readers", lambda: readers.mutations(base, rng, 10_000 // few, processes)
    yield "hostile", lambda: hostile.files(base)
    yield "archives", lambda: hostile.archives(base, rng)
    yield "writers", lambda: crowd.writers(base, rng, "a store", crowd.whole, 300 // few)
    yield "rows", lambda: crowd.writers(base, rng, "an index", crowd.row_alone, 10_000 // few)
    yield "folder", lambda: crowd.one_folder(base, 200 // few)
    yield "caches", lambda: crowd.caches(base, rng, 50 // few or 1)
    yield "extremes", lambda: limits.extreme_inputs(rng, 2000 // few)
    yield "nan", lambda: limits.not_finite(base, rng, 100 // few)
    yield "memory", lambda: limits.out_of_memory(base)
    yield "configs", lambda: limits.fuzzed_configs(rng, 10_000 // few, 1000 // few)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything, and write no page")
    parser.add_argument("--only", nargs="+", default=[], help="run these parts, and renew their lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--soak", type=float, default=1.0, help="hours of the soak; 0 leaves it out")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that share a long part")
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file of results")
    parser.add_argument(
        "--merge", type=Path, nargs="+", default=[], help="run nothing; take these files over"
    )
    given = parser.parse_args()
    if given.merge:
        save(
            {name: row for path in [given.rows, *given.merge] for name, row in known(path).items()},
            given.rows,
        )
        return 0
    if "ultralif-faults" not in os.environ.get("LD_PRELOAD", ""):
        with_faults()
    warnings.simplefilter("ignore")
    warm_up()
    good = True
    memory = Path("/dev/shm")  # noqa: S108 (a disk would only be slow: kills do not lose what was written)
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ultralif-torture-", dir=where) as folder:
        for row in rows_of(Path(folder), given):
            good = good and row["reached"]
            mark = "ok " if row["reached"] else "NO "
            print(f"{mark} {row['test']}: {row['found']} ({row['seconds']:.0f} s)", flush=True)
            if not given.quick:
                save(known(given.rows) | {row["test"]: row}, given.rows)
    return 0 if good else 1


def rows_of(base: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the battery, or the parts that are asked for, and yield each row as it comes."""
    from torture.victims import train
    from torture.warm import run

    if given.only and "kill" not in given.only:
        run(lambda: train(base / "training"))  # to which others compare
    few = 20 if given.quick else 1
    parts = dict(battery(base, given.seed, few, given.processes, given.soak * 3600 / few))
    if unknown := set(given.only) - set(parts):
        raise SystemExit(f"no such part here: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    for name, part in parts.items():
        if given.only and name not in given.only:
            continue
        last = time.monotonic()
        found = part()
        for row in found if isinstance(found, Iterator) else [found]:
            now = time.monotonic()
            yield record(row, name, now - last)
            last = now


if __name__ == "__main__":
    sys.exit(main())
