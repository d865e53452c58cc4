"""NaN and infinity in weights and inputs, memory that is not there, and signals."""

import contextlib
import os
import random
import resource
import shutil
import signal
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

import ultralif as ul
from torture.victims import TINY, runs_of, train
from torture.warm import Child, Row, done, lanes, run
from ultralif.cli.arguments import option_flags
from ultralif.errors import InputError
from ultralif.training import RunConfig, RunOptions, Store, run_local, sweep
from ultralif.training import loop as training_loop

NOT_FINITE = (float("nan"), float("inf"), -float("inf"))


def extreme_inputs(rng: random.Random, count: int) -> Row:
    """Run neurons on currents of any size in any precision: finite in, finite out, or a clear refusal."""
    ended = run(lambda: _extremes(rng, count))
    bar = "forward finite for finite input; gradients finite where those of float64 are"
    return Row(
        "extreme currents", f"{count:,}", bar, ended.message.strip()[-200:], ended.message.startswith("0 ")
    )


def _extremes(rng: random.Random, count: int) -> str:
    bad = []
    for i in range(count):
        name = rng.choice(sorted(ul.NEURONS))
        dtype = rng.choice((torch.float32, torch.bfloat16, torch.float16))
        scale = rng.choice((0.0, 1e-40, 1e-6, 1.0, 1e2, 1e4))
        accepted = ul.NEURONS[name].__signature__.parameters
        options = {"eps": 10 ** rng.uniform(-1, 1)} if "eps" in accepted else {}
        current = scale * torch.randn(rng.randrange(1, 40), 2, 5, generator=torch.Generator().manual_seed(i))
        finite = {}
        for kind in (torch.float64, dtype):
            x = current.to(kind).requires_grad_()
            out = ul.NEURONS[name](**options).to(kind)(x)
            out.sum().backward()
            finite[kind] = bool(out.isfinite().all()), bool(x.grad.isfinite().all())
        if not finite[dtype][0] or finite[dtype][1] < finite[torch.float64][1]:
            bad.append(f"{name} {dtype} {scale} {options}")
    return f"{len(bad)} not finite" + "".join(f"; {line}" for line in bad[:3])


def not_finite(base: Path, rng: random.Random, count: int) -> Row:
    """Poison one member of a stack after its first epoch: it is marked, and no other changes by a bit."""
    configs = [TINY.with_(sparsity=i / 100) for i in range(64)]
    (found,) = lanes(lambda _: _poisonings(base, rng, configs, count), 1)  # one child: it stays warm
    bad = [line for line in found if line != "diverged, finite, 63/63 unchanged"]
    said = f"{len(found) - len(bad)}/{len(found)} diverged, finite, 63/63 unchanged"
    said += "".join(f"; {line}" for line in bad[:3])
    bar = "marked diverged with its last finite parameters; the 63 others bit-unchanged"
    size = f"{count} stacks of 64 members; nan, inf or -inf at a place drawn anew"
    return Row("NaN and Inf weights in a stack", size, bar, said, not bad)


def _poisonings(base: Path, rng: random.Random, configs: list[RunConfig], count: int) -> list[str]:
    training_loop.train_stack(configs, Store(base / "healthy"))
    healthy, folder = runs_of(base / "healthy"), base / "poisoned"
    lines = []
    for _ in range(count):
        victim = rng.choice(configs)
        ended = done(lambda victim=victim: _poisoned(folder, configs, victim, rng))
        found = runs_of(folder)
        same = sum(found.get(c.id) == healthy[c.id] for c in configs if c != victim)
        lines.append(f"{ended.message.strip().splitlines()[-1]}, {same}/63 unchanged")
        shutil.rmtree(folder)
    return lines


def _poisoned(folder: Path, configs: list[RunConfig], victim: RunConfig, rng: random.Random) -> str:
    """Train, with one weight of one member not finite from its second or third epoch on."""
    prepare, epoch, value = training_loop.prepare_epoch, rng.choice((1, 2)), rng.choice(NOT_FINITE)

    def prepared(job: Any) -> None:
        prepare(job)
        if job.epoch == epoch:
            weight = rng.choice(list(job.members.weights))[job.configs.index(victim)]
            with torch.no_grad():
                weight.view(-1)[rng.randrange(weight.numel())] = value

    training_loop.prepare_epoch = prepared
    try:
        results = training_loop.train_stack(configs, Store(folder))
    finally:
        training_loop.prepare_epoch = prepare
    status = next(result.status for result in results if result.id == victim.id)
    weights = ul.load(victim.id, folder).state_dict().values()
    return f"{status}, {'finite' if all(w.isfinite().all() for w in weights) else 'not finite'}"


def out_of_memory(base: Path) -> Row:
    """Give a sweep less memory than its stack needs, by the limit of the system: it must be halved."""
    configs = [TINY.with_(hidden=(3000,), sparsity=i / 100, epochs=1, batch_size=1000) for i in range(16)]
    notes: list[str] = []

    def told(progress: Any) -> None:
        notes.extend([progress.note] if progress.note else [])

    def work(folder: Path, limit: int | None) -> str:
        if limit is not None:
            list(
                run_local([[TINY]], Store(folder / "before"))
            )  # what is imported on the way needs memory, too
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
        store = Store(folder)
        results = list(run_local([configs], store, RunOptions(report=told)))
        return f"{len(results)} results, {sum('halves' in note for note in notes)} times halved"

    limited = run(lambda: work(base / "limited", 700 << 20))
    hopeless = run(lambda: work(base / "hopeless", 40 << 20))
    run(lambda: work(base / "free", None))
    there, wanted = runs_of(base / "limited"), runs_of(base / "free")
    same = sum(_near(there[key], wanted[key]) for key in wanted if key in there)
    good = limited.code == 0 and "0 times" not in limited.message and same == 16 and hopeless.code == 1
    said = limited.message.strip().splitlines()[-1][:150]
    found = f"{said}, {same}/16 the same; with 40 MiB: {hopeless.message[-150:]}"
    bar = "the stack is halved and goes on; alone: a clear error"
    return Row("memory runs out", "16 networks, a real limit", bar, found, good)


def _near(a: tuple[Any, bytes, Any], b: tuple[Any, bytes, Any]) -> bool:
    """Compare two runs that were trained in stacks of different sizes."""
    losses = [[epoch["loss"] for epoch in run_[2]] for run_ in (a, b)]
    return bool(torch.allclose(*map(torch.tensor, losses), rtol=1e-4))


def signals(base: Path, rng: random.Random, count: int) -> Row:
    """Stop a training by SIGTERM and SIGINT at random moments: saved, the right code, then the same end.

    It goes on until so many of each have met a training at work.
    """
    from ultralif.training.progress import stop_on_signals

    reference, good, tried, slowest = runs_of(base / "training"), 0, 0, 0.0
    stopped = {signal.SIGTERM: 0, signal.SIGINT: 0}

    def work(folder: Path) -> None:
        with stop_on_signals() as stopping:
            training_loop.train_stack([TINY], Store(folder), RunOptions(stopping=stopping))

    began = time.monotonic()
    run(lambda: work(base / "signals" / "none"))
    whole = time.monotonic() - began
    while min(stopped.values()) < count and tried < 20 * count:
        number, tried = min(stopped, key=stopped.__getitem__), tried + 1
        folder = base / "signals" / str(tried)
        child = Child(lambda folder=folder: work(folder))
        time.sleep(rng.uniform(0, whole))
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, number)
        ended = child.wait()
        slowest = max(slowest, time.monotonic() - began)
        fine = (
            ended.code in (0, 128 + number)
            or "KeyboardInterrupt" in ended.message
            or "SystemExit" in ended.message
        )
        fine = fine or ended.code == -number  # before the first step there is nothing to save
        if not Store(folder).finished([TINY.id]):
            fine = fine and run(lambda folder=folder: train(folder)).code == 0
        stopped[number] += ended.code == 128 + number
        good += fine and runs_of(folder) == reference
        shutil.rmtree(folder)
    bar = "saved, exit 143 or 130 within 10 s, the end bit-identical"
    met = " and ".join(f"{number} {name.name}" for name, number in stopped.items())
    found = f"{good}/{tried}, slowest {slowest:.1f} s"
    reached = good == tried and slowest < 10 and min(stopped.values()) >= count
    return Row("SIGTERM and SIGINT", f"{tried} signals, {met} while it trained", bar, found, reached)


def fuzzed_configs(rng: random.Random, parsed: int, trained: int) -> Row:
    """Train configs of random values for six steps: each runs, or is refused before any data are loaded."""
    ended = run(lambda: _fuzzed(rng, parsed, trained))
    bar = "valid, or a clear error; the same after a way through its file"
    return Row(
        "random configs",
        f"{parsed:,} parsed, {trained:,} different ones trained",
        bar,
        ended.message[-250:],
        ended.message.startswith("0 "),
    )


VALUES: tuple[Any, ...] = (
    0,
    1,
    2,
    7,
    -1,
    10**9,
    0.0,
    0.5,
    1.5,
    -0.5,
    1e-9,
    1e9,
    float("nan"),
    float("inf"),
    None,
)
VALUES += (True, False, "", "LIF", "ultradlif", "hard", "soft", [], [4], [2, 0.1], [0], "x" * 99, {}, 1e308)


def _fuzzed(rng: random.Random, parsed: int, trained: int) -> str:
    """Parse at least so many configs, and go on until so many different small ones have been trained."""
    names, bad, tried = [*(each.name for each in fields(RunConfig)), *sorted(option_flags())], [], set()
    drawn = valid = refused = 0
    while drawn < parsed or len(tried) - refused < trained:
        drawn += 1
        given = {rng.choice(names): rng.choice(VALUES) for _ in range(rng.randrange(1, 4))}
        try:
            config = RunConfig.from_dict(given)
        except InputError:
            continue
        except Exception as error:
            bad.append(f"{given}: {error!r}")
            continue
        try:
            same = RunConfig.from_dict(config.to_dict()) == config
        except InputError:  # an option of another neuron
            continue
        if not same:
            bad.append(f"{given} is another after a way through its file")
        valid += 1
        small = max(config.hidden) < 99 and config.timesteps < 99 and config.batch_size < 999
        if not small or config.id in tried or len(tried) - refused >= trained:
            continue
        tried.add(config.id)
        try:
            sweep._step_seconds([config.with_(dataset="digits")], torch.device("cpu"))
        except InputError:
            refused += 1
        except Exception as error:
            bad.append(f"{config}: {error!r}")
    found = f"{len(bad)} bad of {valid:,} valid; {drawn:,} parsed in all, {refused} refused by their networks"
    return found + "".join(f"; {line[-200:]}" for line in bad[:2])
