"""The end of a stack's training: its members evaluated, and their runs written."""

from pathlib import Path

from ultralif.training.evaluate import evaluate
from ultralif.training.job import Job
from ultralif.training.result import Result, environment, make_result
from ultralif.training.step import temperature
from ultralif.training.store import Finished, Store

__all__ = ["finish"]


def finish(job: Job, store: Store, aside: Path) -> list[Result]:
    """Evaluate all members and write their runs; return the results in the order of the stack's places.

    Args:
        job: trained to its end.
        store: where the runs go.
        aside: where their folders are prepared.
    """
    job.stack.load_state_dict(job.good)
    for place, epoch in job.lost.items():
        eps = temperature(job.configs[place], max(0, epoch - 2))
        if eps is not None:
            job.stack.assign("eps", place, eps)
    networks = job.stack.unstack()
    evaluations = evaluate(job.stack, job.configs, job.data)
    held_out = evaluate(job.stack, job.configs, job.data, "validation") if job.data.validation else None
    made_by = environment(job.device, job.shared.precision, job.data.dataset.checksum)
    runs, results = [], []
    for place, config in enumerate(job.configs):
        network = networks[job.stack.order[place]]
        lost = job.lost.get(place)
        result = make_result(
            config,
            network,
            store.path(config.id),
            evaluations[place],
            held_out[place] if held_out else None,
            status="done" if lost is None else "diverged",
            epochs=config.epochs if lost is None else lost - 1,
            seconds=job.seconds,
            stacked=len(job.stack),
            environment=made_by,
        )
        history = [{name: values[place] for name, values in epoch.items()} for epoch in job.history[:lost]]
        runs.append(Finished(config, network.state_dict(), result.to_dict(), history))
        results.append(result)
    store.write(runs, aside)
    return results
