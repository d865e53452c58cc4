"""Studies around the paper: equal tuning for all, what each ingredient adds, one open reading at a time."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from ultralif.names import ULTRA
from ultralif.paper.grids import BASE
from ultralif.training.config import RunConfig

__all__ = ["STUDIES", "factorial", "one_at_a_time", "tuning"]

SIXTH = 1 / 6
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
WIDTHS = (0.1, 0.25, 0.5, 1.0)
"""Of a surrogate, and the temperature: the same values for all."""
TUNED = ("LIF", "PLIF", "AdaLIF", "FullPLIF", "DSpike", "SoftLIF", *ULTRA)
_IMAGES = ("mnist", "fashion-mnist", "cifar10")
_PLAIN = BASE.with_(defaults="current")


def tuning() -> Iterator[tuple[str, RunConfig]]:
    """Yield the tuning grid, as large for every neuron: learning rate x width, on a held-out sixth.

    The width is that of the surrogate (1 / slope), of DSpike's curve (its sharpness is 2 * threshold / width)
    or the temperature; it is where a learned one starts. LIF is tuned with three surrogates.
    """
    for dataset, time, rate, width in product((*_IMAGES, "n-mnist"), (1, 10), RATES, WIDTHS):
        base = _PLAIN.with_(dataset=dataset, timesteps=time, learning_rate=rate, validation=SIXTH, seed=1000)
        for neuron in TUNED:
            yield f"{neuron} width={width:g} lr={rate:g}", _with_width(base, neuron, width)
        for surrogate in ("atan", "triangle"):
            config = _with_width(base, "LIF", width)
            options = {**config.neuron_options, "surrogate": surrogate}
            yield f"LIF {surrogate} width={width:g} lr={rate:g}", config.with_(neuron_options=options)


def _with_width(base: RunConfig, neuron: str, width: float) -> RunConfig:
    if neuron in ("LIF", "PLIF", "AdaLIF", "FullPLIF"):
        options = {"surrogate_slope": 1 / width, "scaled_surrogate": True}
    elif neuron.startswith("DSpike"):
        options = {"sharpness": min(100.0, 1 / width)}
    else:
        options = {"eps": width}
    return base.with_(neuron=neuron, neuron_options=options)


def factorial() -> Iterator[tuple[str, RunConfig]]:
    """Yield spikes soft or hard x membrane additive, LSE or ring x width fixed or learned x reset detached.

    At T=1 and 10 on three sets of images; a sigmoid perceptron is the additive soft one at T=1.
    """
    membranes = {"additive": "SoftLIF", "lse": "UltraLIF", "ring": "UltraDLIF"}
    for dataset, time in product(_IMAGES, (1, 10)):
        for (label, neuron), mode, learned, detached in product(
            membranes.items(), ("soft", "hard"), (True, False), (True, False)
        ):
            options = {"eps": 0.5, "learn_eps": learned, "detach_reset": detached}
            if neuron == "UltraDLIF":
                options["centered"] = True
            name = (
                f"{label} {mode} {'learned' if learned else 'fixed'} {'detached' if detached else 'through'}"
            )
            yield (
                name,
                _PLAIN.with_(
                    dataset=dataset, timesteps=time, neuron=neuron, mode=mode, neuron_options=options
                ),
            )


def one_at_a_time() -> Iterator[tuple[str, RunConfig]]:
    """Yield runs of the text's reading with one open point changed, at T=1 and 10 on MNIST and CIFAR-10."""
    changes: dict[str, dict[str, Any]] = {
        "as written": {},
        "rate-normalized": {"encoding": "rate-normalized"},
        "rate-clipped": {"encoding": "rate-clipped"},
        "spiking output": {"readout": "spiking"},
        "reset detached": {"detach_reset": True},
        "reset differentiated": {"detach_reset": False},
        "threshold 0": {"threshold": 0.0},
        "clamp dead": {"clamp": "dead"},
        "eps_min 0.02": {"eps_min": 0.02},
        "eps_min 0.25": {"eps_min": 0.25},
        "scaled surrogate": {"scaled_surrogate": True},
        "soft": {"mode": "soft"},
        "clipped": {"clipped": True},
        "coupled at the spike": {"coupling": "spike"},
    }
    only = {
        "threshold 0": ULTRA,
        "clamp dead": ULTRA,
        "eps_min 0.02": ULTRA,
        "eps_min 0.25": ULTRA,
        "scaled surrogate": ("LIF",),
        "soft": ("LIF", "DSpike"),
        "clipped": ("DSpike",),
        "coupled at the spike": ("UltraDLIF",),
    }
    for dataset, time, neuron in product(
        ("mnist", "cifar10"), (1, 10), ("LIF", "DSpike", "UltraLIF", "UltraDLIF")
    ):
        base = BASE.with_(dataset=dataset, timesteps=time, neuron=neuron)
        for name, fields in changes.items():
            if neuron in only.get(name, (neuron,)):
                known = {key: value for key, value in fields.items() if hasattr(base, key)}
                options = {key: value for key, value in fields.items() if key not in known}
                yield f"{neuron}, {name}", base.with_(**known, neuron_options=options)


STUDIES = {"tuning": tuning, "factorial": factorial, "one-at-a-time": one_at_a_time}
"""Every study by its name; each yields names and runs of one seed."""
