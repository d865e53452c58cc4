"""Hard times, as one command: python tests/torture [--quick] [--only WORD].

It kills, fills disks, turns the clock, damages files, starves and crowds, and writes what came of it to
docs/results/torture.md. It needs Linux and a C compiler; a red line names the seed by which it comes back.
"""

import argparse
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
    from ultralif.ops import cpu
    from ultralif.training.build import build_networks, load_data
    from ultralif.training.job import Job

    torch.set_num_threads(1)
    device = torch.device("cpu")
    cpu._library()
    Job.begin([TINY], build_networks([TINY], device), load_data(TINY, device), device)


def battery(base: Path, seed: int, quick: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the parts by name; each gives one row or several."""
    from torture import crowd, hostile, limits, readers, victims, warm

    rng = random.Random(seed)  # noqa: S311 (it draws damage, not secrets)
    faults, few = warm.Faults(), 20 if quick else 1
    kills = {"training": 500 // few, "sweep": 300 // few, "export": 200 // few}
    yield "kill", lambda: victims.sigkill(base, rng, kills)
    yield "signals", lambda: limits.signals(base, rng, 100 // few)
    yield "disk", lambda: victims.disk(base, faults, 200 // few)
    yield "clock", lambda: victims.clock(base, faults, rng, 20 // few or 1)
    yield "checkpoints", lambda: victims.damaged_checkpoints(base, rng, 200 // few)
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


def page(rows: list[tuple[object, float]], seed: int, seconds: float) -> str:
    """Return the table as Markdown."""
    reached = sum(row.reached for row, _ in rows)
    lines = [
        "# Hard times",
        "",
        f"`make torture` on {platform.machine()} with {os.cpu_count()} cores (shared), Python "
        f"{platform.python_version()}, seed {seed}: {reached} of {len(rows)} bars reached in "
        f"{seconds / 60:.0f} minutes.",
        "",
        "| test | size | bar | found | reached | s |",
        "|---|---|---|---|---|---|",
    ]
    for row, spent in rows:
        cells = (row.test, row.size, row.bar, row.found, "yes" if row.reached else "**no**", f"{spent:.0f}")
        lines.append("| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of everything, and write no page")
    parser.add_argument("--only", default="", help="parts whose name holds this word; kill always runs first")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if "ultralif-faults" not in os.environ.get("LD_PRELOAD", ""):
        with_faults()
    warnings.simplefilter("ignore")
    warm_up()
    began, rows = time.monotonic(), []
    memory = Path("/dev/shm")  # noqa: S108 (a disk would only be slow: kills do not lose what was written)
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ultralif-torture-", dir=where) as folder:
        for name, part in battery(Path(folder), given.seed, given.quick):
            if given.only not in name and name != "kill":
                continue
            last = time.monotonic()
            found = part()
            for row in found if isinstance(found, Iterator) else [found]:
                now = time.monotonic()
                rows.append((row, now - last))
                print(
                    f"{'ok ' if row.reached else 'NO '} {row.test}: {row.found} ({now - last:.0f} s)",
                    flush=True,
                )
                last = now
    text = page(rows, given.seed, time.monotonic() - began)
    if not given.quick and not given.only:
        PAGE.write_text(text)
    return 0 if all(row.reached for row, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
