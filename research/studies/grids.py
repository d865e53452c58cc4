"""Grids for our own studies: equal tuning, the factorial, and one open reading at a time."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from research.paper.grids import BASE, SEED, without_seed
from research.paper.published import ULTRA
from research.readings.neurons import register_neurons
from research.readings.perceptrons import register_units
from research.readings.presets import reading_config
from ultralif.data.encoders import NORMALIZED
from ultralif.training import Result, RunConfig

__all__ = [
    "MEMBRANES",
    "OPEN",
    "RATES",
    "READ",
    "READINGS",
    "SEARCH",
    "SMALL",
    "STUDIES",
    "TUNED",
    "WIDTHS",
    "Runs",
    "StudyCell",
    "collect",
    "factorial",
    "held_out",
    "one_at_a_time",
    "open_readings",
    "tuned",
    "tuning",
]

RATES = (3e-4, 1e-3, 3e-3, 1e-2)
"""Learning rates, the same for all neurons."""
WIDTHS = (0.1, 0.25, 0.5, 1.0)
"""Surrogate widths and temperatures, the same values for all neurons."""
SEARCH: dict[str, Any] = {"validation": 1 / 6, "epochs": 20, "seed": 1000}
"""Config fields of the tuning runs; the chosen settings are then trained like all other runs."""
SMALL = "digits"
"""The images included in scikit-learn; each study on them takes minutes on one CPU core."""
_PLAIN = RunConfig(precision=BASE.precision)


class StudyCell(NamedTuple):
    """A study run without its seed."""

    label: str
    dataset: str
    timesteps: int


Runs = Iterator[tuple[StudyCell, RunConfig]]

_BINARY: dict[str, Any] = {"mode": "hard"}
_SIGMOID: dict[str, Any] = {"surrogate": "sigmoid"}
TUNED: dict[str, tuple[str, dict[str, Any]]] = {
    "LIF": ("LIF", _SIGMOID),
    "LIF atan": ("LIF", {"surrogate": "atan"}),
    "LIF triangle": ("LIF", {"surrogate": "triangle"}),
    "LIF learned width": ("LIF", _SIGMOID | {"learn_slope": True}),
    "PLIF": ("PLIF", _SIGMOID),
    "AdaLIF": ("EarlyAdaLIF", _SIGMOID),
    "FullPLIF": ("FullPLIF", _SIGMOID),
    "DSpike": ("DSpike", {}),
    "DSpikePlus": ("DSpikePlus", {}),
    "SoftLIF": ("SoftLIF", {}),
    **{neuron: (neuron, {}) for neuron in ULTRA},
    "SoftLIF binary": ("SoftLIF", _BINARY),
    "UltraLIF binary": ("UltraLIF", _BINARY),
    "UltraPLIF binary": ("UltraPLIF", _BINARY),
    "UltraDLIF binary": ("UltraDLIF", _BINARY | {"centered": True}),
}
"""The tuned neurons by label, with their options; "binary" ones are trained with binary spikes."""


def tuning() -> Runs:
    """Yield the tuning grid of learning rates and widths, equally large for every neuron.

    A sixth of the training set is held out. The width is the temperature, or the width of the surrogate
    (1 / slope) or of DSpike's curve (2 * threshold / sharpness). A learned width starts at this value.
    """
    yield from _grid(tuple(SEARCH.items()))


@cache
def _grid(search: tuple[tuple[str, Any], ...]) -> list[tuple[StudyCell, RunConfig]]:
    """Build the grid once, because it has thousands of configs and every table of the study uses it."""
    register_neurons()
    grid = []
    for time, dataset, rate in product(
        (1, 10), ("mnist", "cifar10", "fashion-mnist", "n-mnist", "shd", SMALL), RATES
    ):
        base = _PLAIN.with_(dataset=dataset, timesteps=time, learning_rate=rate, **dict(search))
        for width, (label, (neuron, options)) in product(WIDTHS, TUNED.items()):
            changed = base.with_(neuron=neuron, **{**options, **_width(neuron, width)})
            grid.append((StudyCell(f"{label}, width {width:g}, rate {rate:g}", dataset, time), changed))
    return grid


def _width(neuron: str, width: float) -> dict[str, float]:
    if neuron in ("LIF", "PLIF", "FullPLIF", "EarlyAdaLIF"):
        return {"surrogate_slope": 1 / width}
    return {"sharpness": 1 / width} if neuron.startswith("DSpike") else {"eps": width}


def tuned(results: Iterable[Result]) -> Runs:
    """Yield the setting of each neuron that is best on the held-out sixth.

    A neuron is skipped until its whole grid is finished; diverged runs count as finished.
    """
    known = {result.id: result for result in results}
    grids: dict[StudyCell, list[RunConfig]] = {}
    for cell, config in tuning():
        grids.setdefault(cell._replace(label=cell.label.partition(",")[0]), []).append(config)
    for cell, configs in grids.items():
        if all(config.id in known for config in configs):
            best = max(configs, key=lambda config: held_out(known[config.id]))
            yield cell, best.with_(validation=0.0, epochs=BASE.epochs, seed=SEED)


def held_out(result: Result) -> float:
    """Return the held-out accuracy in the training mode; 0 for a diverged run."""
    value = result.own.validation if result.status == "done" else 0.0
    return 0.0 if value is None else value


MEMBRANES = {"additive": "SoftLIF", "LSE": "UltraLIF", "ring": "UltraDLIF"}
"""The factorial's membranes: V = leak V + I, log-sum-exp over time, and log-sum-exp over a centred ring."""


def factorial() -> Runs:
    """Yield the factorial: soft or binary spikes, membrane, fixed or learned width, reset detached or not.

    At T=1 no step follows the reset. Sigmoid and ReLU perceptrons are added for comparison.
    """
    for time, dataset in product((1, 10), ("cifar10", "mnist", "fashion-mnist", SMALL)):
        base = _PLAIN.with_(dataset=dataset, timesteps=time)
        resets = (True, False) if time > 1 else (True,)
        for (membrane, neuron), mode, learned, detached in product(
            MEMBRANES.items(), ("soft", "hard"), (True, False), resets
        ):
            options = {"eps": 0.5, "learn_eps": learned, "detach_reset": detached}
            if neuron == "UltraDLIF":
                options["centered"] = True
            words = (
                membrane,
                "soft" if mode == "soft" else "binary",
                "learned" if learned else "fixed",
                "detached" if detached else "differentiated",
            )
            config = base.with_(neuron=neuron, mode=mode, neuron_options=options)
            yield StudyCell(", ".join(words), dataset, time), config
        for unit in register_units():
            yield StudyCell(f"{unit.__name__} perceptron", dataset, time), base.with_(neuron=unit.__name__)


READINGS: dict[str, dict[str, Any]] = {
    "as written": {},
    "rate code of normalised pixels": {"encoding": "rate-normalized"},
    "rate code, clipped as released": {"encoding": "rate-clipped"},
    "spiking output": {"readout": "spiking"},
    "reset not differentiated": {"detach_reset": True},
    "threshold 0": {"threshold": 0.0},
    "gradient of eps cut at its bounds": {},
    "eps at least 0.02": {"eps_min": 0.02},
    "eps at least 0.25": {"eps_min": 0.25},
    "surrogate scaled by its slope": {},
    "soft spikes": {"mode": "soft"},
    "curve clipped": {},
    "coupled at the spike": {},
}
"""The open readings of the text, with the fields and options that each changes."""
_OTHER: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("gradient of eps cut at its bounds", "UltraLIF"): ("ReleasedUltraLIF", {"threshold": 0.5}),
    ("gradient of eps cut at its bounds", "UltraDLIF"): ("ClampedUltraDLIF", {"threshold": 0.5}),
    ("surrogate scaled by its slope", "LIF"): (
        "LIF",
        _SIGMOID | {"surrogate_slope": 10.0, "detach_reset": False},
    ),
    ("curve clipped", "DSpike"): ("DSpike", {"detach_reset": False}),
    ("coupled at the spike", "UltraDLIF"): ("SpikeCoupledUltraDLIF", {}),
}
"""The neurons, with their options, for readings that need a different neuron."""
_ONLY = {
    "threshold 0": ULTRA,
    "gradient of eps cut at its bounds": ULTRA,
    "eps at least 0.02": ULTRA,
    "eps at least 0.25": ULTRA,
    "surrogate scaled by its slope": ("LIF",),
    "soft spikes": ("LIF", "DSpike"),
    "curve clipped": ("DSpike",),
    "coupled at the spike": ("UltraDLIF",),
}
READ = ("LIF", "DSpike", "UltraLIF", "UltraDLIF")
"""The neurons trained with each open reading."""


def one_at_a_time() -> Runs:
    """Yield runs as written, but with one ambiguous point read differently, at T=1 and 10."""
    for time, dataset, neuron in product((1, 10), ("cifar10", "mnist", SMALL), READ):
        fields: dict[str, Any] = {"dataset": dataset, "timesteps": time, "precision": BASE.precision}
        for name, changes in READINGS.items():
            known = dataset != SMALL or changes.get("encoding") not in NORMALIZED
            if neuron not in _ONLY.get(name, (neuron,)) or not known:
                continue
            config = reading_config("written", neuron, **fields, **changes)
            if (name, neuron) in _OTHER:
                other, options = _OTHER[name, neuron]
                config = RunConfig(neuron=other, neuron_options=options, **fields)
            yield StudyCell(f"{neuron}, {name}", dataset, time), config


_ALL = ("LIF", "PLIF", "AdaLIF", "FullPLIF", "DSpike", "DSpikePlus", "SoftLIF", *ULTRA)
OPEN: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "as written": (_ALL, {}),
    "orthogonal initialisation": (_ALL, {"orthogonal": True}),
    "eps of each neuron": (("SoftLIF", *ULTRA), {"per_neuron": True}),
    "reset by the spike before": (("LIF", "DSpike", "SoftLIF", *ULTRA), {"delayed_reset": True}),
    "decay to V + log(leak)": (("UltraDPLIF",), {}),
    "adaptation a step later": (("AdaLIF",), {}),
    "events of 0 and 1": (("LIF", "PLIF", "DSpike", "SoftLIF", *ULTRA), {"binary_events": True}),
}
"""Choices left open by the text: the neurons affected by each, and the fields and options it changes."""
_INSTEAD = {"decay to V + log(leak)": "ShiftedUltraDPLIF", "adaptation a step later": "LateAdaLIF"}
_LATER = ("reset by the spike before", "adaptation a step later")
"""Choices about the previous spike, which does not exist at T=1."""


def open_readings() -> Runs:
    """Yield runs as written, but with one open choice changed; event counts exist only on SHD.

    For the larger datasets, the runs as written are part of the paper's tables.
    """
    for time, dataset in product((1, 10), (SMALL, "mnist", "shd")):
        fields: dict[str, Any] = {"dataset": dataset, "timesteps": time, "precision": BASE.precision}
        for name, (neurons, changes) in OPEN.items():
            if (time == 1 and name in _LATER) or (dataset == "shd") != ("binary_events" in changes):
                continue
            if name == "as written" and dataset != SMALL:
                continue
            for neuron in neurons:
                config = reading_config("written", neuron, **fields, **changes)
                if name in _INSTEAD:
                    detached = {"detach_reset": False} if neuron == "AdaLIF" else {}
                    config = RunConfig(neuron=_INSTEAD[name], neuron_options=detached, **fields)
                yield StudyCell(f"{neuron}, {name}", dataset, time), config


STUDIES: dict[str, Callable[[], Runs]] = {
    "tuning": tuning,
    "factorial": factorial,
    "one-at-a-time": one_at_a_time,
    "open-readings": open_readings,
}
"""All studies by name; each yields cells and their runs for one seed."""


def collect(runs: Runs, results: Iterable[Result]) -> dict[StudyCell, dict[int, Result]]:
    """Return the finished results for a study's cells by seed."""
    cells: dict[str, StudyCell] = {}
    kinds: set[tuple[str, str, int]] = set()
    for cell, config in runs:
        cells[without_seed(config.to_dict())] = cell
        kinds.add((config.dataset, config.neuron, config.timesteps))
    found: dict[StudyCell, dict[int, Result]] = {}
    for result in results:
        if result.status != "done" or (result.dataset, result.neuron, result.timesteps) not in kinds:
            continue  # faster than converting the config to text
        place = cells.get(without_seed(result.config))
        if place is not None:
            found.setdefault(place, {})[result.seed] = result
    return found
