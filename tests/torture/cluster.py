"""Clusters whose workers, nodes, drivers and ranks are killed; a program of its own, started by __main__.py.

python cluster.py PART FOLDER SEED FEW prints a row of the table as JSON.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]
os.environ |= {
    "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "OMP_NUM_THREADS": "1",
}
ULTRALIF = [sys.executable, "-m", "ultralif"]
SWEEP = "sweep --neurons UltraLIF,LIF --timesteps 1,2 --hidden 8 --checkpoint-seconds 0.2 --json --epochs 400"
TRAIN = "train --timesteps 2 --epochs 40 --checkpoint-seconds 0 --json"
MADE_ANEW = ("path", "seconds", "finished")
OBJECTS = 80 << 20


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def trainers(runs: Path) -> list[int]:
    """The living processes that train a stack which has a checkpoint by now."""
    locks = [lock for lock in runs.glob(".training/*.lock") if any(lock.with_suffix("").glob("[0-9]*"))]
    pids = [int(text) for text in (lock.read_text() for lock in locks) if text]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [{k: v for k, v in row.items() if k not in MADE_ANEW} for row in rows]
    return sorted(kept, key=lambda row: row["id"])  # a list, in which a run that is there twice is seen


def ray_losses(base: Path, rng: random.Random, losses: int) -> dict[str, Any]:
    """Sweep on a cluster of three nodes and kill what can be killed, until enough are lost of each kind.

    Args:
        base: an empty folder.
        rng: draws victims and moments.
        losses: of each kind.
    """
    local = start(*ULTRALIF, *SWEEP.split(), "--runs-dir", str(base / "local")).communicate()[0]
    alone = without_times(json.loads(local))
    lost, sweeps, same = Counter(dict.fromkeys(("workers", "nodes", "drivers"), 0)), 0, 0
    silences: list[tuple[float, float]] = []
    while min(lost.values()) < losses:
        order = [kind for kind in lost for _ in range(min(10, losses - lost[kind]))]
        rng.shuffle(order)
        runs, done, silent = _ray_sweep(base / str(sweeps), rng, order)
        sweeps, same, silences = sweeps + 1, same + (runs == alone), silences + silent
        lost.update(done)
        row = _ray_row(lost, sweeps, same, silences)
        print(json.dumps(row), file=sys.stderr, flush=True)  # what there is, should it be stopped
    return row


def _ray_row(
    lost: Counter[str], sweeps: int, same: int, silences: list[tuple[float, float]]
) -> dict[str, Any]:
    """Return the row; a silence is the seconds after a loss until a trainer is seen, and the load then."""
    longest, load = max(silences)
    usual = median(seconds for seconds, _ in silences)
    found = f"{same}/{sweeps} sweeps have the same 4 runs, once each; after a loss a trainer is at work "
    found += f"within {usual:.0f} s in the median and {longest:.0f} s at most, at a load of {load:.0f}; "
    found += f"{sum(seconds > 60 for seconds, _ in silences)} of {len(silences)} beyond 60 s"
    bar = "all runs once in the store, equal to the local ones; no hang beyond 60 s"
    size = ", ".join(f"{count} {kind}" for kind, count in sorted(lost.items()))
    return _row("Ray: SIGKILL and lost nodes", size, bar, found, same == sweeps and longest <= 60)


def _ray_sweep(
    runs: Path, rng: random.Random, order: list[str]
) -> tuple[Any, Counter[str], list[tuple[float, float]]]:
    """Lose workers, nodes and drivers in an order, until the sweep ends.

    Return its runs, the losses, and for each loss the seconds until a trainer is seen and the load then.
    The start of the cluster is not counted.
    """
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": OBJECTS}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    done, silences = Counter[str](), list[tuple[float, float]]()
    words = [*ULTRALIF, *SWEEP.split(), "--runs-dir", str(runs), "--ray", cluster.address]
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=OBJECTS)
    driver, began = start(*words), 0.0
    try:
        for kind in order:
            while not (found := trainers(runs)) and driver.poll() is None:
                time.sleep(0.05)
            if done:
                silences.append((time.monotonic() - began, os.getloadavg()[0]))
            if driver.poll() is not None:
                break
            time.sleep(rng.uniform(0, 1))
            began = time.monotonic()
            if kind == "workers":
                _kill(rng.choice(found))
            elif kind == "nodes":
                cluster.remove_node(rng.choice(sorted(cluster.worker_nodes, key=id)), allow_graceful=False)
                cluster.add_node(num_cpus=1, object_store_memory=OBJECTS)
            else:
                driver.kill()
                driver.communicate()
                driver = start(*words)
            done[kind] += 1
        out, _ = driver.communicate(timeout=1200)
    finally:
        driver.kill()
        cluster.shutdown()
    return without_times(json.loads(out)) if driver.returncode == 0 else None, done, silences


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has just ended
        return


def rank_losses(base: Path, rng: random.Random, kills: int) -> dict[str, Any]:
    """Train on four processes and kill one of them again and again."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    words = [*torchrun, "-m", "ultralif", *TRAIN.split(), "--runs-dir"]
    slowest, killed = 0.0, 0
    for _ in range(kills):
        before = _newest(base / "ranks")
        job = start(*words, str(base / "ranks"))
        while _newest(base / "ranks") <= before and job.poll() is None:
            time.sleep(0.02)
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        if job.poll() is None and children:
            _kill(int(rng.choice(children)))
            killed += 1
        began = time.monotonic()
        job.communicate()
        slowest = max(slowest, time.monotonic() - began)
    again, whole = (_said(start(*words, str(base / name))) for name in ("ranks", "whole"))
    files = [(base / name / whole["id"] / "model.safetensors").read_bytes() for name in ("ranks", "whole")]
    same = files[0] == files[1] and without_times([again]) == without_times([whole])
    bar = "all ranks end within 60 s; started again, bit-identical"
    found = f"{'identical' if same else 'not identical'}, slowest end {slowest:.0f} s"
    return _row(
        "torchrun: SIGKILL of a rank", f"{killed} kills of 4 ranks", bar, found, same and slowest < 60
    )


def _said(job: subprocess.Popen[str]) -> Any:
    """Return the run that a job prints as JSON; torch's own remarks may come before it."""
    out = job.communicate()[0]
    return json.loads(out[out.index("{") :])


def _newest(runs: Path) -> str:
    return max((path.parent.name for path in runs.glob(".training/*/[0-9]*/manifest.json")), default="")


def determinism(base: Path, count: int) -> dict[str, Any]:
    """Train the same run in new processes."""
    digests = set()
    for i in range(count):
        words = [*ULTRALIF, *TRAIN.replace("40", "3").split(), "--runs-dir", str(base / f"fresh-{i}")]
        run = json.loads(start(*words).communicate()[0])["id"]
        digests.add((base / f"fresh-{i}" / run / "model.safetensors").read_bytes())
    bar = "the same bytes of parameters"
    return _row("the same seed in a new process", str(count), bar, f"{len(digests)} kinds", len(digests) == 1)


def _row(*values: Any) -> dict[str, Any]:
    return dict(zip(("test", "size", "bar", "found", "reached"), values, strict=True))


def main(part: str, base: Path, seed: int, few: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (it draws victims, not secrets)
    parts = {
        "fresh": lambda: determinism(base, -(-20 // few)),
        "ranks": lambda: rank_losses(base, rng, -(-30 // few)),
        "ray": lambda: ray_losses(base, rng, -(-50 // few)),
    }
    print(json.dumps(parts[part]()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
