"""A sweep on a real cluster of several Ray nodes, whose workers, nodes and driver are killed."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ultralif.cli import main
from ultralif.training import RunConfig, Store, grid, plan, train

SWEEP = "sweep --neurons UltraLIF,LIF --timesteps 1,2,3 --epochs 120 --checkpoint-seconds 0.2 --json"
MADE_ANEW = ("path", "seconds", "finished")
"""What differs between two trainings of the same run."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without cores and two nodes of one core each, all on this machine."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))  # the workers inherit it
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
    running = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            running.add_node(num_cpus=1, object_store_memory=80 << 20)
        yield running
    finally:
        running.shutdown()


def start(address: str, runs: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "ultralif", *SWEEP.split(), "--runs-dir", str(runs), "--ray", address]
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(what: Callable[[], Any], driver: subprocess.Popen[str]) -> Any:
    """Return what is awaited as soon as it is there."""
    for _ in range(2400):
        found = what()
        if found:
            return found
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
    pytest.fail(f"{what} did not happen")


def trainers(runs: Path) -> list[int]:
    """The processes that train a stack which has a checkpoint by now."""
    found = []
    for lock in (runs / ".training").glob("*.lock"):
        if any(lock.with_suffix("").glob("[0-9]*/manifest.json")):
            with contextlib.suppress(FileNotFoundError):  # its run has just ended
                found.append(lock.read_text())
    return [int(text) for text in found if text]


def without_times(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {row["id"]: {k: v for k, v in row.items() if k not in MADE_ANEW} for row in rows}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # of Ray, in this process
def test_every_stack_is_finished_once_whoever_is_killed(cluster: Any, tmp_path: Path, capsys: Any) -> None:
    runs, store = tmp_path / "ray", Store(tmp_path / "ray")
    driver = start(cluster.address, runs)
    try:
        first = wait_for(lambda: trainers(runs), driver)[0]
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: set(trainers(runs)) - {first}, driver)
        cluster.remove_node(sorted(cluster.worker_nodes, key=id)[0], allow_graceful=False)
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        wait_for(store.rows, driver)  # some are done, and others are not: 120 epochs take longer than a look
        driver.kill()
        driver.communicate()
        driver = start(cluster.address, runs)
        said, errors = driver.communicate(timeout=240)
    finally:
        driver.kill()
    assert driver.returncode == 0, errors
    assert main([*SWEEP.split(), "--runs-dir", str(tmp_path / "local")]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert len(alone) == 6
    stored = [row.to_dict() for row in store.rows()]
    assert without_times(json.loads(said)) == without_times(stored) == without_times(alone)
    assert not list((runs / ".training").glob("*/*")), "checkpoints are left"


def test_a_run_whose_folder_is_whole_is_adopted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    configs = grid(RunConfig(epochs=1), ["LIF"], [1], [0.0], [1, 2])
    for config in configs:
        train(config, runs_dir=tmp_path)
    before = store.rows()
    with sqlite3.connect(store.index) as index:  # as if the driver had been lost before it wrote
        index.execute("DELETE FROM runs")
    assert plan(configs, store) != []
    assert store.adopt([config.id for config in configs])
    assert store.rows() == before
    assert plan(configs, store) == []
    (store.path(configs[0].id) / "model.safetensors").write_bytes(b"")
    assert not store.adopt([config.id for config in configs])


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_is_not_there_is_bad_input(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("ray")
    assert main([*SWEEP.split(), "--runs-dir", str(tmp_path), "--ray", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def _listening(root: int) -> list[str]:
    """The addresses, in hexadecimal, on which a process and its descendants listen."""
    family, children = set(), [root]
    while children:
        pid = children.pop()
        family.add(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children += map(int, task.read_text().split())
    sockets = set()
    for pid in family:
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(str(fd.readlink()))
    tables = (Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_our_own_ray_listens_on_loopback_only(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = [
        "sweep",
        "--model",
        "mlp",
        "--neurons",
        "LIF",
        "--seeds",
        "2",
        "--epochs",
        "3000",
        "--quiet",
        "--ray",
    ]
    command = [sys.executable, "-m", "ultralif", *words, "--runs-dir", str(tmp_path / "runs")]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: any((tmp_path / "runs" / ".training").glob("*.lock")), driver)
        found = _listening(driver.pid)
    finally:
        driver.terminate()
        driver.communicate(timeout=60)
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert len(found) >= 3 and set(found) <= loopback, found
