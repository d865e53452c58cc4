"""Many runs: which ones, in which stacks, once each."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from training.small import notes, small, stop_after
from ultralif.errors import InputError, JobError
from ultralif.training import (
    Interrupted,
    Progress,
    RunConfig,
    RunOptions,
    Store,
    estimate,
    grid,
    loop,
    plan,
    run_local,
    sweep,
    train_stack,
)
from ultralif.training.loop import Job, Steps
from ultralif.training.sweep import GROUPS, halves


def test_a_grid_has_every_combination_once() -> None:
    configs = grid(small(), ["all", "LIF", "lif"], [1, 10, 30], [0.0, 0.01], range(5))
    assert len(configs) == len({config.id for config in configs}) == 11 * 3 * 2 * 5
    assert {config.neuron for config in configs} == set(GROUPS["all"])


def test_a_plan_puts_together_what_can_be_trained_together(store: Store) -> None:
    configs = grid(small(), ["ultra", "LIF"], [1, 2], [0.0, 0.1], [1, 2])
    stacks = plan(configs, store)
    assert len(stacks) == 4 and Counter(map(len, stacks)) == {10: 4}
    for stack in stacks:
        assert len({(config.timesteps, config.seed) for config in stack}) == 1
    assert sorted(map(len, plan(configs, store, largest=4))) == [2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4]
    with pytest.raises(InputError, match="largest"):
        plan(configs, store, largest=0)


def test_a_stack_may_have_several_seeds(store: Store) -> None:
    configs = [small(neuron=name, seed=seed) for seed in range(5) for name in ("LIF", "UltraLIF")]
    stacks = plan([*configs, small(neuron="PLIF", seed=4)], store, seeds=3)
    assert [len(stack) for stack in stacks] == [6, 2, 3]
    assert [{config.seed for config in stack} for stack in stacks] == [{0, 1, 2}, {3}, {4}]


def test_what_is_finished_is_not_planned(store: Store) -> None:
    configs = grid(small(epochs=1), ["UltraLIF", "LIF", "PLIF"], [1], [0.0], [1])
    train_stack(configs[:1], store)
    assert plan(configs, store) == [configs[1:]]
    train_stack(configs[1:], store)
    assert plan(configs, store) == []


def test_a_sweep_that_is_stopped_and_continued_trains_each_stack_once(store: Store, tmp_path: Path) -> None:
    configs = grid(small(), ["UltraLIF", "LIF"], [1, 2, 3], [0.0], [1])
    whole = Store(tmp_path / "whole")
    list(run_local(plan(configs, whole), whole))
    trained: Counter[int] = Counter()

    def report(progress: Progress) -> None:
        if not progress.note:
            trained[stacks[progress.stack][0].timesteps, progress.epoch] += 1

    stops = 0
    while stacks := plan(configs, store):
        try:
            for _ in run_local(stacks, store, RunOptions(report=report, stopping=stop_after(5))):
                pass
        except Interrupted:
            stops += 1
    assert stops == 3, "eighteen steps in all"
    assert trained == {(time, epoch): 1 for time in (1, 2, 3) for epoch in (1, 2)}
    assert len(store.rows()) == len(configs)
    for config in configs:
        ours, theirs = (s.read(config.id).contents.tensors() for s in (store, whole))
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_halves_keep_as_many_of_each_seed() -> None:
    configs = [small(neuron=name, seed=seed) for seed in (1, 2, 3) for name in ("LIF", "PLIF", "UltraLIF")]
    assert halves(configs) == (configs[:3], configs[3:])
    assert halves(configs[:3]) == (configs[:1], configs[1:3])


def test_a_stack_that_does_not_fit_is_halved(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with room for two networks: what torch raises there, until the stack is small enough."""
    sizes = []

    def short_of_memory(stack, *rest, **options):
        sizes.append(len(stack))
        if len(stack) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train_stack(stack, *rest, **options)

    monkeypatch.setattr(loop, "train_stack", short_of_memory)
    configs = grid(small(epochs=1), ["baselines"], [1], [0.0], [1])[:5]
    said: list[str] = []
    results = list(run_local([configs], store, RunOptions(report=notes(said))))
    assert sizes == [5, 2, 3, 1, 2]
    assert [note.split(";")[0] for note in said] == [
        "5 networks do not fit on the device together",
        "3 networks do not fit on the device together",
    ]
    assert {result.id for result in results} == {config.id for config in configs}
    assert len(store.rows()) == 5


def test_one_network_that_does_not_fit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*rest, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loop, "train_stack", never)
    with pytest.raises(JobError, match="smaller batch_size"):
        list(run_local([[small()]], store))


def test_what_cannot_fit_this_machine_is_said_before_data_are_loaded(store: Store) -> None:
    with pytest.raises(InputError, match=r"need about .* GB, and this machine has"):
        train_stack([small(hidden=(10**6, 10**6))], store)
    assert not store.root.exists()


def test_the_first_step_is_no_measure_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles and allocates, and alone it may take longer than measuring is to take."""
    usual = loop.steps

    def slow_at_first(job: Job) -> Steps:
        def run(job: Job) -> Iterator[int]:
            time.sleep(0.5)
            yield from usual(job)(job)

        return run

    monkeypatch.setattr(loop, "steps", slow_at_first)
    monkeypatch.setattr(sweep, "ENOUGH", 0.1)
    assert sweep._step_seconds([RunConfig(hidden=(4,), timesteps=1)], torch.device("cpu")) < 0.4


def test_the_estimate_counts_steps() -> None:
    """A step is timed once for stacks that differ in their seed or penalty; the rest is arithmetic."""
    assert sweep._steps(RunConfig(epochs=1)) == 12 and sweep._steps(RunConfig(epochs=50)) == 600
    assert sweep._steps(RunConfig(epochs=1, validation=0.5)) == 6
    first, second = estimate([[small()], [small(seed=7, sparsity=0.1)]])
    assert first == second > 0
