"""The result of a run: one type from training through the store to reports. Does not import torch."""

import base64
import binascii
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ultralif.errors import InputError
from ultralif.files import BadFile, visible
from ultralif.names import MODES, Mode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "E_AC",
    "E_MAC",
    "ByEpoch",
    "LearnedConstants",
    "ModeResult",
    "Operations",
    "Reader",
    "Result",
    "ann_energy",
    "ann_int8_energy",
    "break_even",
    "count_operations",
    "pack_hits",
    "relative_sops",
    "snn_energy",
    "snn_int8_energy",
    "unpack_hits",
]


E_AC = 0.9
"""Energy of one float32 addition at 45 nm, in picojoules (Horowitz 2014)."""
E_MAC = 4.6
"""Energy of one multiplication and one addition, in picojoules."""


def relative_sops(timesteps: float, rate: float) -> float:
    r"""Return the paper's energy, :math:`T \cdot \bar s` (section 6).

    Example:
        >>> relative_sops(10, 0.5)
        5.0
    """
    return timesteps * rate


def snn_energy(timesteps: float, rate: float, synapses: int) -> float:
    r"""Return the paper's energy for a spiking network, :math:`T \bar s N_{syn} E_{AC}` (appendix D.7).

    The unit is picojoules. Only additions are counted, so the value is meaningful only for binary spikes.
    """
    return relative_sops(timesteps, rate) * synapses * E_AC


def ann_energy(synapses: int) -> float:
    r"""Return the paper's energy in picojoules for a network without spikes, :math:`N_{syn} E_{MAC}`."""
    return synapses * E_MAC


@dataclass(frozen=True)
class Operations:
    """Synaptic operations for one sample: multiply-accumulates, and additions alone."""

    macs: float
    acs: float

    @property
    def energy(self) -> float:
        """The energy of these operations, in picojoules."""
        return self.macs * E_MAC + self.acs * E_AC


def count_operations(
    sizes: Sequence[int],
    timesteps: float,
    input_density: float,
    rates: Sequence[float],
    *,
    input_binary: bool,
    binary: bool,
) -> Operations:
    """Count the synaptic operations of a multilayer perceptron for one sample.

    An input or spike of 0 costs nothing. A 1 costs one addition for each outgoing synapse, and any other
    value also costs a multiplication. Soft spikes are never zero, so all their synapses multiply. Biases and
    the neurons' own arithmetic are not counted, as in NeuroBench.

    Args:
        sizes: the layer sizes, from inputs to classes.
        timesteps: T.
        input_density: the share of nonzero inputs.
        rates: the mean spike of each spiking layer that feeds another layer.
        input_binary: whether all inputs are 0 or 1.
        binary: whether all spikes are 0 or 1.

    Example:
        >>> count_operations((4, 8, 2), 10, 0.5, [0.25], input_binary=True, binary=True)
        Operations(macs=0.0, acs=200.0)
        >>> count_operations((4, 8, 2), 10, 0.5, [0.25], input_binary=True, binary=False)
        Operations(macs=160.0, acs=160.0)
    """
    first = timesteps * input_density * sizes[0] * sizes[1]
    macs, acs = (0.0, first) if input_binary else (first, 0.0)
    for rate, n_in, n_out in zip(rates, sizes[1:], sizes[2:], strict=False):
        if binary:
            acs += timesteps * rate * n_in * n_out
        else:
            macs += float(timesteps * n_in * n_out)
    return Operations(macs, acs)


ADD_INT32, MULTIPLY_INT8, MULTIPLY_INT32 = 0.1, 0.2, 3.1
"""Energy of one operation at 45 nm, in picojoules (Horowitz, ISSCC 2014, figure 1.1.9)."""
SRAM_BIT = 5 / 32
"""Picojoules per bit read from or written to an 8 kB SRAM: 5 for 32 bits, half of Horowitz's 10 for 64."""
MEMBRANE_ACCESS = 2 * 16 * SRAM_BIT


def snn_int8_energy(operations: Operations, timesteps: float, neurons: int) -> float:
    """Return the energy of an integer spiking network in picojoules, including memory accesses.

    `operations` covers all time steps, and `neurons` is the number of spiking neurons. Every addition reads
    an 8-bit weight, and reads and writes a 16-bit membrane. In every step, every neuron reads and writes its
    membrane, multiplies once for the leak, and adds twice, to compare and to reset. Event lists and the
    readout's own arithmetic are not counted.
    """
    events = (operations.macs + operations.acs) * (8 * SRAM_BIT + MEMBRANE_ACCESS + ADD_INT32)
    updates = timesteps * neurons * (MEMBRANE_ACCESS + MULTIPLY_INT32 + 2 * ADD_INT32)
    return events + operations.macs * MULTIPLY_INT8 + updates


def ann_int8_energy(synapses: int, neurons: int) -> float:
    """Return the energy of the same network with ReLU in int8, in picojoules, including memory accesses.

    Every synapse reads an 8-bit weight and an 8-bit activation, and the sum stays in a register. A neuron
    scales its sum with one multiplication and writes 8 bits.
    """
    each = 2 * 8 * SRAM_BIT + MULTIPLY_INT8 + ADD_INT32
    return synapses * each + neurons * (MULTIPLY_INT32 + 8 * SRAM_BIT)


def break_even(timesteps: float, synapses: int, neurons: int) -> float:
    """Return the spike rate below which `snn_int8_energy` is less than `ann_int8_energy`.

    The rate is the mean number of spikes per synapse and time step. It is 0 if updating the neurons alone
    costs more than the dense network. Large layers break even at 44 % for T=1 and at 9 % for T=5. Yan et al.
    (arXiv 2409.08290v4) find 5.7 % for T=5: they also count the on-chip network, and use 3-bit dense
    activations.

    Example:
        >>> round(break_even(timesteps=2, synapses=100, neurons=10), 4)
        0.124
    """
    spared = ann_int8_energy(synapses, neurons) - snn_int8_energy(Operations(0, 0), timesteps, neurons)
    if spared <= 0:
        return 0.0
    return spared / snn_int8_energy(Operations(0, timesteps * synapses), timesteps, 0)


MOST = 1 << 20
"""The maximum number of samples in a packed string."""


def pack_hits(hits: "NDArray[np.bool_]") -> str:
    """Return a string with the number of samples and one compressed bit per sample.

    Example:
        >>> import numpy as np
        >>> unpack_hits(pack_hits(np.array([True, False, True])))
        array([ True, False,  True])
    """
    import numpy as np

    return f"{len(hits)}:{base64.b64encode(zlib.compress(np.packbits(hits).tobytes(), 9)).decode()}"


def unpack_hits(text: str) -> "NDArray[np.bool_]":
    """Return the hits that `pack_hits` packed.

    Example:
        >>> import numpy as np
        >>> unpack_hits(pack_hits(np.array([True, False])))
        array([ True, False])
    """
    import numpy as np

    size, _, packed = text.partition(":")
    try:
        count = int(size)
        if not 0 <= count <= MOST:
            raise ValueError("too many")
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(packed, validate=True), MOST // 8 + 1)
        if len(data) != -(-count // 8):
            raise ValueError("not their number")
    except (ValueError, binascii.Error, zlib.error) as error:
        raise InputError("the hits of this result cannot be read; train the run again") from error
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(bool)


LONGEST = 10**6
"""The maximum number of entries in a list or mapping of a stored result."""


class Reader:
    """Reads typed values from a JSON object; errors name the object and the entry."""

    def __init__(self, values: Any, source: str) -> None:
        if not isinstance(values, dict) or len(values) > LONGEST:
            raise BadFile(f"{source} is not a JSON object with the numbers of a run")
        self.values: dict[str, Any] = values
        self.source = source

    def part(self, name: str) -> "Reader":
        """Return a nested object; a missing one is empty."""
        value = self.values.get(name)
        return Reader({} if value is None else value, f"{name} of {self.source}")

    def text(self, name: str, default: str | None = None) -> str:
        """Return a short string."""
        value = self.values.get(name, default)
        if not isinstance(value, str) or len(value) > 4096:
            raise self._wrong(name, "a text")
        return value

    def long_text(self, name: str) -> str | None:
        """Return a string, if there is one."""
        value = self.values.get(name)
        if value is not None and (not isinstance(value, str) or len(value) > LONGEST):
            raise self._wrong(name, "a text")
        return value

    def number(self, name: str) -> float | None:
        """Return a finite number, if there is one."""
        return self._number(name, self.values.get(name))

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a nonnegative integer."""
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise self._wrong(name, "an integer of at least 0")
        return value

    def numbers(self, name: str) -> tuple[float | None, ...] | None:
        """Return a list of numbers, if there is one."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > LONGEST:
            raise self._wrong(name, "a list of numbers")
        return tuple(self._number(name, entry) for entry in value)

    def operations(self) -> Operations | None:
        """Return counted operations, if any."""
        macs, acs = self.number("macs"), self.number("acs")
        return None if macs is None or acs is None else Operations(macs, acs)

    def layers(self, name: str) -> dict[str, Operations]:
        """Return counted operations by layer name."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or len(value) > LONGEST:
            raise self._wrong(name, "a list of objects")
        entries = [Reader(entry, f"{name} of {self.source}") for entry in value]
        return {one.text("layer"): found for one in entries if (found := one.operations()) is not None}

    def every_number(self) -> dict[str, float | None]:
        """Return all entries, which must be numbers."""
        return {name: self.number(name) for name in self.values}

    def scalars(self) -> dict[str, Any]:
        """Return the entries that are strings or numbers."""
        return {name: v for name, v in self.values.items() if isinstance(v, str | int | float | None)}

    def _number(self, name: str, value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number")
        if isinstance(value, int) and abs(value) > 10**300:
            raise self._wrong(name, "a number")
        return float(value) if math.isfinite(value) else None

    def _wrong(self, name: str, wanted: str) -> BadFile:
        found = visible(repr(self.values.get(name)))[:60]
        return BadFile(f"{name!r} of {self.source} must be {wanted}, got {found}")


@dataclass(frozen=True)
class ModeResult:
    """A network's measurements on the test set in one mode; None means unknown."""

    accuracy: float | None = None
    """Accuracy on the test set, in percent."""
    spike_rate: float | None = None
    """Mean spike rate of the hidden neurons."""
    spike_rates: tuple[float | None, ...] = ()
    """Mean spike rate of each spiking layer."""
    operations: Operations | None = None
    relative_sops: float | None = None
    """The paper's T * rate."""
    snn_picojoules: float | None = None
    """The paper's energy estimate."""
    int8_picojoules: float | None = None
    """Energy of integer arithmetic and memory accesses, see `snn_int8_energy`."""
    validation: float | None = None
    """Accuracy on the held-out part of the training set, in percent."""
    layers: Mapping[str, Operations] = field(default_factory=dict)
    """Operations of each layer by name, if they were counted layer by layer."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """The loss and the metrics of the user's own task."""


@dataclass(frozen=True)
class LearnedConstants:
    """The constants of the first spiking layer after training, averaged over its neurons.

    A constant is None if the neuron does not have it, or if it was not recorded.
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
        """The best test accuracy of any epoch, which is what the paper reports."""
        return max((value for value in self.test or () if value is not None), default=None)


@dataclass(frozen=True)
class Result:
    """A run's numbers, measured after its last epoch, never after its best.

    Example:
        >>> import tempfile
        >>> from ultralif.training import RunConfig, train
        >>> result = train(RunConfig(epochs=1), runs_dir=tempfile.mkdtemp())
        >>> result.neuron, result.status, result.epochs
        ('UltraLIF', 'done', 1)
    """

    id: str
    status: str
    """``done``, or ``diverged`` if the loss became NaN or infinite."""
    dataset: str
    neuron: str
    timesteps: int
    seed: int
    sparsity: float
    mode: str
    """The mode at the end of training, and the main entry of `by_mode`."""
    by_mode: Mapping[str, ModeResult]
    constants: LearnedConstants = LearnedConstants()
    by_epoch: ByEpoch = ByEpoch()
    hits: str | None = None
    """The test samples classified correctly in `mode`, see `ultralif.training.result`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The run's config, see `RunConfig.to_dict`."""
    path: str = ""
    ann_picojoules: float | None = None
    """The paper's energy estimate for the same network without spikes."""
    ann_int8_picojoules: float | None = None
    """The energy of the same network with ReLU in int8, see `ann_int8_energy`."""
    break_even: float | None = None
    """The spike rate at which both integer networks use the same energy, see `break_even`."""
    epochs: int = 0
    """The epoch from which the final parameters were taken."""
    seconds: float | None = None
    """Wall time for training the whole stack that contained this run."""
    stacked: int | None = None
    """Number of members of that stack."""
    finished: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The code, device, precision and data that produced the result."""

    def __repr__(self) -> str:
        """Return a line with the run's name and its accuracy in every mode."""
        percent = ", ".join(f"{mode} {x:.2f} %" for mode, x in self.accuracy.items() if x is not None)
        for mode, one in self.metrics.items():
            percent += "".join(f", {mode} {name} {x:.4g}" for name, x in one.items() if x is not None)
        which = f"{self.network_title} on {self.dataset_title}, T={self.timesteps}, seed {self.seed}"
        return f"Result({self.id}, {self.status}: {which}; {percent.removeprefix(', ')})"

    @property
    def own(self) -> ModeResult:
        """The measurements in the training mode."""
        return self.by_mode.get(self.mode, ModeResult())

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Accuracy on the test set by mode, in percent."""
        return {mode: one.accuracy for mode, one in self.by_mode.items()}

    @property
    def metrics(self) -> dict[str, Mapping[str, float | None]]:
        """Loss and metrics on the test set for the user's own task, by mode."""
        return {mode: one.metrics for mode, one in self.by_mode.items() if one.metrics}

    @property
    def network_title(self) -> str:
        """A readable name of the network: its neuron, or for example ``net.py:Net (UltraLIF)``."""
        model = self.config.get("model", "mlp")
        return self.neuron if model == "mlp" else f"{self.environment.get('model', model)} ({self.neuron})"

    @property
    def dataset_title(self) -> str:
        """A readable name of the data, such as ``mnist`` or ``my.npz``."""
        return str(self.environment.get("dataset", self.dataset))

    @property
    def spike_rate(self) -> dict[str, float | None]:
        """Mean spike rate of the hidden neurons, by mode."""
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
        """Return the result in JSON form, with the values of each mode grouped by quantity."""
        modes = self.by_mode
        operations = {m: _counts(one.operations) for m, one in modes.items() if one.operations is not None}
        layers = {
            mode: [{"layer": name, **_counts(part)} for name, part in one.layers.items()]
            for mode, one in modes.items()
            if one.layers
        }
        metrics = {mode: dict(one.metrics) for mode, one in modes.items() if one.metrics}
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
                "int8": {
                    "snn_picojoules": {m: x for m, one in modes.items() if (x := one.int8_picojoules)},
                    "ann_picojoules": self.ann_int8_picojoules,
                    "break_even": self.break_even,
                },
            },
            **({"metrics": metrics} if metrics else {}),
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
        """Read the output of `to_dict`, of this version or of 0.1.0; missing entries are unknown.

        Args:
            data: a parsed JSON value.
            source: the name to use in errors.
        """
        read = Reader(data, source)
        constants = {"eps": read.number("eps"), "leak": read.number("leak")}
        stored = read.part("constants")
        constants |= {name: v for name in CONSTANTS if (v := stored.number(name)) is not None}
        by_epoch, int8 = read.part("by_epoch"), read.part("energy").part("int8")
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
            ann_int8_picojoules=int8.number("ann_picojoules"),
            break_even=int8.number("break_even"),
            epochs=read.whole("epochs", 0),
            seconds=read.number("seconds"),
            stacked=None if read.values.get("stacked") is None else read.whole("stacked"),
            finished=read.number("finished") or 0.0,
            environment=read.part("environment").scalars(),
        )

    def with_history(self, history: Sequence[Mapping[str, Any]]) -> "Result":
        """Return the result, completed with values from a history."""
        known = {
            name: tuple(epoch.get(name) for epoch in history)
            for name in ("test", "validation", "eps")
            if getattr(self.by_epoch, name) is None and any(e.get(name) is not None for e in history)
        }
        return replace(self, by_epoch=replace(self.by_epoch, **known))

    def with_sops(self) -> "Result":
        """Return the result with the paper's T * rate, computed from the stored rates."""
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
    """Read a network's measurements in one mode."""
    energy = read.part("energy")
    return ModeResult(
        read.part("accuracy").number(mode),
        read.part("spike_rate").number(mode),
        read.part("spike_rates").numbers(mode) or (),
        energy.part("operations").part(mode).operations(),
        energy.part("relative_sops").number(mode),
        energy.part("snn_picojoules").number(mode),
        energy.part("int8").part("snn_picojoules").number(mode),
        read.part("validation").number(mode),
        energy.part("layers").layers(mode),
        read.part("metrics").part(mode).every_number(),
    )
