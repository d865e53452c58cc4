"""The result of a run: one type from training through the store to reports. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ultralif.names import MODES, Mode
from ultralif.training.energy import Operations
from ultralif.training.reader import Reader

__all__ = ["ByEpoch", "LearnedConstants", "ModeResult", "Result"]


@dataclass(frozen=True)
class ModeResult:
    """A network's numbers on the test set in one mode; None is unknown."""

    accuracy: float | None = None
    """Percent of the test set."""
    spike_rate: float | None = None
    """Mean over the hidden neurons."""
    spike_rates: tuple[float | None, ...] = ()
    """The same for each spiking layer."""
    operations: Operations | None = None
    relative_sops: float | None = None
    """The paper's T * rate."""
    snn_picojoules: float | None = None
    """The paper's energy."""
    validation: float | None = None
    """Percent of the held-out part of the training set."""
    layers: Mapping[str, Operations] = field(default_factory=dict)
    """Operations of each layer by its name, where they were counted layer by layer."""


@dataclass(frozen=True)
class LearnedConstants:
    """The constants of the first spiking layer after training, means over its neurons.

    None: the neuron has no such constant, or it was not recorded.
    """

    eps: float | None = None
    leak: float | None = None
    threshold: float | None = None
    sharpness: float | None = None
    slope: float | None = None


@dataclass(frozen=True)
class ByEpoch:
    """Values after every epoch; None where they were not recorded."""

    test: tuple[float | None, ...] | None = None
    """Accuracy on the test set in percent, in the mode of training."""
    validation: tuple[float | None, ...] | None = None
    """The same on the held-out part of the training set."""
    eps: tuple[float | None, ...] | None = None

    @property
    def last(self) -> float | None:
        """Test accuracy after the last epoch."""
        return self.test[-1] if self.test else None

    @property
    def best(self) -> float | None:
        """Test accuracy of the best epoch on the test set: the number that the paper published."""
        return max((value for value in self.test or () if value is not None), default=None)


@dataclass(frozen=True)
class Result:
    """A run's numbers: those of its last epoch, never of its best."""

    id: str
    status: str
    """``done``, or ``diverged`` if the loss became NaN or infinite."""
    dataset: str
    neuron: str
    timesteps: int
    seed: int
    sparsity: float
    mode: str
    """The mode at the end of training: the first to look at in `by_mode`."""
    by_mode: Mapping[str, ModeResult]
    constants: LearnedConstants = LearnedConstants()
    by_epoch: ByEpoch = ByEpoch()
    hits: str | None = None
    """The test samples classified correctly in `mode`, see `ultralif.training.hits`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The run's config, see `RunConfig.to_dict`."""
    path: str = ""
    ann_picojoules: float | None = None
    """The paper's energy of a network without spikes."""
    epochs: int = 0
    """Epochs after which its parameters were taken."""
    seconds: float | None = None
    """Wall time of the stack that it was trained in."""
    stacked: int | None = None
    """Members of that stack."""
    finished: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Code, device, precision and data behind it."""

    def __repr__(self) -> str:
        """Say in a line which run it is and how accurate it is in every mode."""
        percent = ", ".join(f"{mode} {x:.2f} %" for mode, x in self.accuracy.items() if x is not None)
        which = f"{self.neuron} on {self.dataset}, T={self.timesteps}, seed {self.seed}"
        return f"Result({self.id}, {self.status}: {which}; {percent})"

    @property
    def own(self) -> ModeResult:
        """The numbers in the mode of training."""
        return self.by_mode.get(self.mode, ModeResult())

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Percent of the test set, by mode."""
        return {mode: one.accuracy for mode, one in self.by_mode.items()}

    @property
    def spike_rate(self) -> dict[str, float | None]:
        """Mean over the hidden neurons, by mode."""
        return {mode: one.spike_rate for mode, one in self.by_mode.items()}

    @property
    def eps(self) -> float | None:
        """Temperature after training."""
        return self.constants.eps

    @property
    def leak(self) -> float | None:
        """Decay factor after training."""
        return self.constants.leak

    @property
    def validation(self) -> dict[str, float | None] | None:
        """Accuracy on the held-out part, by mode."""
        values = {mode: one.validation for mode, one in self.by_mode.items()}
        return values if any(value is not None for value in values.values()) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON has it: what is known of each mode, by quantity and mode."""
        modes = self.by_mode
        operations = {m: _counts(one.operations) for m, one in modes.items() if one.operations is not None}
        layers = {
            mode: [{"layer": name, **_counts(part)} for name, part in one.layers.items()]
            for mode, one in modes.items()
            if one.layers
        }
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "accuracy": self.accuracy,
            "spike_rate": self.spike_rate,
            "spike_rates": {mode: list(one.spike_rates) for mode, one in modes.items()},
            "energy": {
                "relative_sops": {mode: one.relative_sops for mode, one in modes.items()},
                "snn_picojoules": {mode: one.snn_picojoules for mode, one in modes.items()},
                "ann_picojoules": self.ann_picojoules,
                "operations": operations,
                **({"layers": layers} if layers else {}),
            },
            "eps": self.eps,
            "leak": self.leak,
            "constants": asdict(self.constants),
            "by_epoch": {
                name: None if values is None else list(values) for name, values in vars(self.by_epoch).items()
            },
            "validation": self.validation,
            "hits": self.hits,
            "config": dict(self.config),
            "environment": dict(self.environment),
        }

    @classmethod
    def from_dict(cls, data: Any, source: str = "the result") -> "Result":
        """Read what `to_dict` wrote, now or in 0.1.0; what is not there is unknown.

        Args:
            data: a value of JSON.
            source: named in errors.
        """
        read = Reader(data, source)
        constants = {"eps": read.number("eps"), "leak": read.number("leak")}
        stored = read.part("constants")
        constants |= {name: v for name in CONSTANTS if (v := stored.number(name)) is not None}
        by_epoch = read.part("by_epoch")
        return cls(
            id=read.text("id"),
            status=read.text("status"),
            dataset=read.text("dataset"),
            neuron=read.text("neuron"),
            timesteps=read.whole("timesteps"),
            seed=read.whole("seed"),
            mode=read.text("mode"),
            sparsity=read.number("sparsity") or 0.0,
            by_mode={mode: _in_mode(read, mode) for mode in MODES if mode in read.part("accuracy").values},
            constants=LearnedConstants(**constants),
            by_epoch=ByEpoch(**{name: by_epoch.numbers(name) for name in ("test", "validation", "eps")}),
            hits=read.long_text("hits"),
            config=read.part("config").values,
            path=read.text("path", ""),
            ann_picojoules=read.part("energy").number("ann_picojoules"),
            epochs=read.whole("epochs", 0),
            seconds=read.number("seconds"),
            stacked=None if read.values.get("stacked") is None else read.whole("stacked"),
            finished=read.number("finished") or 0.0,
            environment=read.part("environment").scalars(),
        )

    def with_history(self, history: Sequence[Mapping[str, Any]]) -> "Result":
        """Return the result, completed from the epochs of a history."""
        known = {
            name: tuple(epoch.get(name) for epoch in history)
            for name in ("test", "validation", "eps")
            if getattr(self.by_epoch, name) is None and any(e.get(name) is not None for e in history)
        }
        return replace(self, by_epoch=replace(self.by_epoch, **known))

    def with_sops(self) -> "Result":
        """Return the result with the paper's T * rate, where only the rate was kept."""
        modes = {
            mode: one
            if one.spike_rate is None
            else replace(one, relative_sops=self.timesteps * one.spike_rate)
            for mode, one in self.by_mode.items()
        }
        return replace(self, by_mode=modes)


_PLAIN = (
    *("id", "status", "dataset", "neuron", "timesteps", "seed", "sparsity", "mode", "path", "epochs"),
    *("seconds", "stacked", "finished"),
)
CONSTANTS = ("eps", "leak", "threshold", "sharpness", "slope")
"""The names of `LearnedConstants`."""


def _counts(operations: Operations) -> dict[str, float]:
    return {"macs": operations.macs, "acs": operations.acs, "picojoules": operations.energy}


def _in_mode(read: Reader, mode: Mode) -> ModeResult:
    """Read what is known of a network in one mode."""
    energy = read.part("energy")
    return ModeResult(
        read.part("accuracy").number(mode),
        read.part("spike_rate").number(mode),
        read.part("spike_rates").numbers(mode) or (),
        energy.part("operations").part(mode).operations(),
        energy.part("relative_sops").number(mode),
        energy.part("snn_picojoules").number(mode),
        read.part("validation").number(mode),
        energy.part("layers").layers(mode),
    )
