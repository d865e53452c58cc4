"""The faults: a line of the code, what it becomes, and the quick tests that must notice."""

from typing import NamedTuple

__all__ = ["FAULTS", "Fault"]


class Fault(NamedTuple):
    """One fault."""

    name: str
    file: str
    """Below ``src/ultralif``."""
    was: str
    """A part of the file that is there once."""
    becomes: str
    tests: tuple[str, ...]


ORACLE = ("tests/functional/test_oracle.py",)
LAWS = ("tests/functional/test_laws.py",)
GRADIENTS = ("tests/functional/test_gradients.py",)
PARITY = ("tests/ops/test_parity.py",)
LOOP = ("tests/training/test_plain_loop.py",)
WIRING = ("tests/training/test_wiring.py",)
QUANTIZE = ("tests/export/test_quantize.py", "tests/export/test_networks.py")
PAPER = ("tests/research/test_paper.py",)
EVALUATE = ("tests/training/test_evaluate.py", "tests/training/test_energy.py")

OLD = [
    # Faults that an earlier look at the tests found unnoticed.
    Fault("halo of a ring's derivative", "ops/cpu/spatial.h", "r.span << backward", "r.span", PARITY),
    Fault(
        "spike at the threshold",
        "ops/cpu/lane.h",
        "return p > limit ? (REAL)1 : p <= limit ? (REAL)0 : p - limit;",
        "return p >= limit ? (REAL)1 : p <= limit ? (REAL)0 : p - limit;",
        PARITY,
    ),
    Fault(
        "bounds of the temperature",
        "training/networks.py",
        '"eps_range"] = (config.eps_min, config.eps_max)',
        '"eps_range"] = (0.1, 20.0)',
        WIRING,
    ),
    Fault(
        "speed of the temperature on the leak",
        "stack/neurons.py",
        'eps_speed if entry.name == "eps" else 1.0',
        "eps_speed",
        WIRING,
    ),
    Fault(
        "penalty by layers",
        "stack/networks.py",
        "return (hidden[0] if len(hidden) == 1 else torch.cat(hidden, 2)).mean((0, 2))",
        "return torch.stack([one.mean((0, 2)) for one in hidden]).mean(0)",
        WIRING,
    ),
    Fault("gain", "training/batches.py", "gain=config.gain", "gain=0.5", WIRING),
    Fault(
        "augmentation",
        "training/batches.py",
        "augmentation(config) if training and images else False",
        "False",
        WIRING,
    ),
    Fault("threshold rounded", "export/quantize.py", "/ unit).floor()),", "/ unit).round()),", QUANTIZE),
    Fault("Student's t", "report/statistics.py", "LEVEL = 0.95", "LEVEL = 0.94", PAPER),
    Fault(
        "orthogonal start", "training/networks.py", "        if config.orthogonal:", "        if False:", LOOP
    ),
    Fault("binary events", "training/batches.py", "if config.binary_events:", "if False:", LOOP),
    Fault(
        "sign of the volume",
        "nn/volume.py",
        "(-0.5 * log_det)",
        "(0.5 * log_det)",
        (*LOOP, "src/ultralif/nn/volume.py"),
    ),
    Fault(
        "hard epochs",
        "training/schedule.py",
        "epoch >= config.epochs - hard_epochs(config)",
        "epoch > config.epochs - hard_epochs(config)",
        LOOP,
    ),
    Fault("seed of the loader", "training/batches.py", "seed=config.seed", "seed=42", LOOP),
    Fault(
        "encoding",
        "training/batches.py",
        'encoding="constant" if config.encoding == "direct" else config.encoding',
        'encoding="rate"',
        WIRING,
    ),
]

NEW = [
    # The definition.
    Fault(
        "soft reset never differentiated",
        "functional/reset.py",
        'mode != "soft" if detach_reset is None else detach_reset',
        "True",
        GRADIENTS,
    ),
    Fault(
        "saturation",
        "functional/reset.py",
        "torch.minimum(potential, top)",
        "torch.maximum(potential, top)",
        ORACLE,
    ),
    Fault(
        "logarithm of the decay",
        "functional/ultra.py",
        "return _log(leak) / eps",
        "return _log(leak) * eps",
        LAWS,
    ),
    Fault(
        "centred in the limit",
        "functional/ultra.py",
        'if centered and mode != "tropical":',
        "if centered:",
        ("tests/functional", "tests/research/test_dynamics.py", "-m", "not slow"),
    ),
    Fault(
        "adaptation too early",
        "functional/baselines.py",
        "limit = threshold + adapt_strength * state.b",
        "limit = threshold + adapt_strength * adapted",
        ORACLE,
    ),
    Fault(
        "clip of DSpike",
        "functional/spike.py",
        "curve.clamp(0.0, 1.0)",
        "curve.clamp(0.0, 1.1)",
        ORACLE,
    ),
    Fault(
        "area of atan",
        "functional/spike.py",
        "torch.atan(math.pi / 2 * z)",
        "torch.atan(math.pi * z)",
        ORACLE,
    ),
    Fault(
        "synaptic current",
        "functional/baselines.py",
        "v = leak * v + current\n    return v, v",
        "v = leak * (v + current)\n    return v, v",
        LAWS,
    ),
    Fault(
        "infinite terms",
        "maxplus.py",
        "gap = torch.where(infinite, 0.0, x - top)",
        "gap = (x - top)",
        ("tests/test_maxplus.py",),
    ),
    # Kernels in C.
    Fault(
        "subtracted threshold of AdaLIF",
        "ops/cpu/temporal.h",
        "after -= c->subtracted * rise;",
        "after += c->subtracted * rise;",
        PARITY,
    ),
    Fault("late adaptation's derivative", "ops/cpu/temporal.h", " - c->strength * to_limit;", ";", PARITY),
    Fault("slope of atan", "ops/cpu/lane.h", "2.4674011002723395", "2.4674", PARITY),
    Fault(
        "a tie of a maximum",
        "ops/cpu/temporal.h",
        "past == x[j] ? (REAL)0.5",
        "past == x[j] ? (REAL)1",
        PARITY,
    ),
    Fault("membrane told by spikes", "ops/cpu/spikes.h", "* rest + l.after", "+ l.after", PARITY),
    Fault("leak told by spikes", "ops/cpu/spikes.h", "to_leak += back * v[j];", "to_leak += back;", PARITY),
    Fault("bound of a learned constant", "ops/cpu/constants.h", "g > 0 ? !(x <=", "g < 0 ? !(x <=", PARITY),
    Fault(
        "height's derivative",
        "ops/cpu/temporal.h",
        "else if (membrane == ADD)\n                sums->amplitude[j] += f.fed * (gate - (REAL)0.5)",
        "else if (membrane == ADD)\n                sums->amplitude[j] += f.fed * gate",
        PARITY,
    ),
    # Modules.
    Fault(
        "state of a delay",
        "nn/layers.py",
        "signal[len(signal) - self.max_delay :]",
        "signal[: self.max_delay]",
        ("tests/nn", "-m", "not slow", "-k", "delay or Delay or recurrent or memory"),
    ),
    Fault(
        "gradient across pieces",
        "nn/layers.py",
        "return state.detach()",
        "return state",
        ("tests/nn/test_memory.py", "tests/nn/test_stepped.py"),
    ),
    Fault(
        "mode of a stack",
        "stack/neurons.py",
        'choices["mode"] = mode if mode in self.groups[n][0].modes else "hard"',
        'choices["mode"] = "hard"',
        ("tests/stack",),
    ),
    # Training.
    Fault("label smoothing", "training/losses.py", "label_smoothing=smoothing", "label_smoothing=0.0", LOOP),
    Fault(
        "loss by step",
        "training/losses.py",
        'configs[0].loss == "tet"',
        "False",
        ("tests/training", "-m", "not slow", "-k", "plain or tet or loss or objective or step or deep"),
    ),
    Fault(
        "warm-up",
        "training/schedule.py",
        "config.learning_rate * (epoch + part) / warm",
        "config.learning_rate * (epoch + 1) / warm",
        (*LOOP, "tests/training/test_optimizer.py", "tests/training/test_deep.py"),
    ),
    Fault(
        "end of annealing",
        "training/schedule.py",
        "max(1, config.epochs - 1)",
        "max(1, config.epochs)",
        WIRING,
    ),
    Fault(
        "second moment",
        "training/optimizer.py",
        "beta2=0.999",
        "beta2=0.99",
        ("tests/training/test_optimizer.py",),
    ),
    Fault(
        "steps are not restored",
        "training/optimizer.py",
        'return {"steps": self.steps, **named}',
        "return named",
        ("tests/training/test_resume.py",),
    ),
    Fault(
        "validation on the test set",
        "training/evaluate.py",
        'if split == "test" else data.validation',
        'if split == "test" else data.dataset.test',
        ("tests/training/test_evaluate.py", "tests/training/test_sweep.py"),
    ),
    Fault(
        "energy of soft spikes",
        "training/result.py",
        "macs += float(timesteps * n_in * n_out)",
        "macs += float(timesteps * rate * n_in * n_out)",
        EVALUATE,
    ),
    Fault(
        "live default in a stored run",
        "training/config.py",
        'given["neuron_options"] = CompleteOptions(options)',
        'given["neuron_options"] = {}',
        ("tests/training/test_identity.py",),
    ),
    Fault(
        "unchecked file",
        "training/checkpoint.py",
        "if hashlib.sha256(content).hexdigest() != digest:",
        "if False:",
        ("tests/training/test_checkpoint.py",),
    ),
    Fault(
        "kept checkpoints",
        "training/checkpoint.py",
        "if folder <= written)[-KEEP:]",
        ")[-KEEP:]",
        ("tests/training/test_checkpoint.py", "tests/training/test_resume.py"),
    ),
    Fault(
        "diverged members",
        "training/loop.py",
        "job.members.copy_member(place, before, job.good)",
        "pass",
        ("tests/training/test_divergence.py",),
    ),
    # Data, export, paper, commands.
    Fault(
        "order of an epoch",
        "data/loader.py",
        "manual_seed(self.seed_of(epoch, 0))",
        "manual_seed(self.seed_of(0, 0))",
        ("tests/data/test_loader.py",),
    ),
    Fault(
        "label of a mixture",
        "data/loader.py",
        "(batch, certain)",
        "(batch, certain.roll(1, 0))",
        ("src/ultralif/data/loader.py",),
    ),
    Fault(
        "square at the edge",
        "data/loader.py",
        "- middle + size // 2",
        "- middle",
        ("tests/data", "-m", "not slow", "-k", "cut or augment or loader"),
    ),
    Fault(
        "interval",
        "report/statistics.py",
        "stdev(values) ** 2 / count",
        "stdev(values) ** 2 / (count - 1)",
        (*PAPER, "src/ultralif/report/statistics.py"),
    ),
    Fault(
        "reset in integers",
        "export/quantize.py",
        "reset=whole(each(_level(neuron), node.shape) / unit)",
        "reset=whole(each(_level(neuron), node.shape))",
        QUANTIZE,
    ),
    Fault(
        "constants of another layer in the history",
        "training/members.py",
        "neuron.constant(name) for neuron in self.neurons if",
        "neuron.constant(name) for neuron in reversed(self.neurons) if",
        ("tests/training/test_single.py",),
    ),
    Fault(
        "first step in an estimate",
        "training/sweep.py",
        "in pairwise(ends))",
        "in pairwise([ends[0] - 1, ends[0]]))",
        ("tests/training/test_sweep.py", "-k", "measure"),
    ),
    Fault(
        "silence about a finished run",
        "training/api.py",
        "            warnings.warn(",
        "            (lambda *_, **__: None)(",
        ("tests/training/test_single.py", "-k", "killed"),
    ),
    Fault(
        "size of a file",
        "files.py",
        "if limit is not None and status.st_size > limit:",
        "if False:",
        ("tests/test_files.py",),
    ),
]

LOSSES = ("tests/training/test_losses.py",)
STREAMS = ("tests/training/test_streams.py", "tests/data/test_user_data.py")
CONVERT = ("tests/conversion/test_convert.py",)
BOUNDS = ("tests/export/test_overflow.py", "tests/export/test_levels.py")
COMPARE = ("tests/export/test_compare.py", "tests/export/test_foreign.py")
GATHER = ("tests/export/test_plan.py", "tests/export/test_levels.py")

LATER = [
    # Faults in losses, streaming data, conversion and export, chosen before it was known which are noticed.
    Fault(
        "padding in a mean",
        "training/losses.py",
        "(steps * weights).sum(0) / weights.sum(0)",
        "(steps * weights).sum(0) / len(weights)",
        LOSSES,
    ),
    Fault(
        "the last step of the longest sample",
        "training/losses.py",
        "(time * mask).amax(0)",
        "(time * mask).amax().expand(mask.shape[1])",
        LOSSES,
    ),
    Fault(
        "padding in a maximum",
        "training/losses.py",
        "== 0, -torch.inf).amax(0)",
        "== 0, 0.0).amax(0)",
        LOSSES,
    ),
    Fault(
        "checkpoints with soft spikes",
        "training/loop.py",
        "with in_mode(job.members, mode):",
        "with nullcontext():",
        ("tests/training/test_own_networks.py",),
    ),
    Fault(
        "a shared neuron counts by its calls",
        "training/members.py",
        "weights = [call.steps * call.size for call in calls]",
        "weights = [call.steps for call in calls]",
        ("tests/training/test_own_networks.py",),
    ),
    Fault(
        "no label smoothing",
        "training/losses.py",
        "_each_entropy(flat, wanted, label_smoothing)",
        "_each_entropy(flat, wanted, 0.0)",
        LOSSES,
    ),
    Fault(
        "target rate of the correct class",
        "training/losses.py",
        "* (correct - other) + other",
        "* correct + other",
        LOSSES,
    ),
    Fault(
        "long samples count more",
        "training/losses.py",
        "return mean(each, mask).mean()",
        "return each[mask].mean()",
        LOSSES,
    ),
    Fault(
        "one step of padding", "data/stream.py", "[:, None] < lengths.to", "[:, None] <= lengths.to", STREAMS
    ),
    Fault(
        "samples of a digest",
        "data/stream.py",
        "(count - 1) / COMPARED)",
        "(count - 1) / (2 * COMPARED))",
        STREAMS,
    ),
    Fault(
        "the first batch after a resume", "data/stream.py", "if step >= start:", "if step > start:", STREAMS
    ),
    Fault(
        "axes of targets over time",
        "data/stream.py",
        "if self.timed and not self.time_first:",
        "if self.timed and self.time_first:",
        STREAMS,
    ),
    Fault("seed of numpy", "data/stream.py", "    np.random.seed(seed % 2**32)\n", "    pass\n", STREAMS),
    Fault(
        "one full sample hides padding",
        "data/stream.py",
        "(lengths == x.shape[1 - axis]).all()",
        "(lengths == x.shape[1 - axis]).any()",
        STREAMS,
    ),
    Fault(
        "a batch with some NaN",
        "data/stream.py",
        "bool(torch.isfinite(x).all())",
        "bool(torch.isfinite(x).any())",
        STREAMS,
    ),
    Fault("epoch of a sampler", "data/stream.py", "source.set_epoch(epoch)", "source.set_epoch(0)", STREAMS),
    Fault(
        "bounds of snnTorch's beta", "conversion/neurons.py", "beta = beta.clamp(0, 1)\n", "pass\n", CONVERT
    ),
    Fault(
        "second reset of snnTorch",
        "conversion/neurons.py",
        "v = v - (spike - before) *",
        "v = v - spike *",
        CONVERT,
    ),
    Fault(
        "delay of a reset before the leak",
        "conversion/neurons.py",
        'self.reset != "none" and not (self.reset == "zero" and first)',
        'self.reset != "none"',
        CONVERT,
    ),
    Fault(
        "gain of an undecayed input",
        "conversion/neurons.py",
        "gain = rate if self.decay_input and bool(rate > 0) else 1.0",
        "gain = rate if bool(rate > 0) else 1.0",
        CONVERT,
    ),
    Fault(
        "a spike at the threshold of a LIF",
        "conversion/neurons.py",
        'if getattr(fire, "at_threshold", False):',
        "if False:",
        CONVERT,
    ),
    Fault(
        "current of norse's membrane",
        "conversion/neurons.py",
        "(v_leak - state.v + i)\n        after",
        "(v_leak - state.v + state.i)\n        after",
        CONVERT,
    ),
    Fault(
        "another output of a converted network",
        "conversion/check.py",
        "one.shape != other.shape or not torch.allclose",
        "one.shape != other.shape and not torch.allclose",
        CONVERT,
    ),
    Fault(
        "events at several places",
        "export/bounds.py",
        "high.amax(1) * most.total)",
        "high.amax(1) * most.each)",
        BOUNDS,
    ),
    Fault(
        "shifts beyond 32 bits",
        "export/bounds.py",
        "torch.where(shift > 31,",
        "torch.where(shift > 63,",
        BOUNDS,
    ),
    Fault(
        "corrections of a ring's log-sum-exp",
        "export/bounds.py",
        '"ring": 2}[neuron.coupling]',
        '"ring": 1}[neuron.coupling]',
        BOUNDS,
    ),
    Fault(
        "tolerance of an export",
        "export/compare.py",
        "limit = min(1e3 * eps, 0.05)",
        "limit = max(1e3 * eps, 0.05)",
        COMPARE,
    ),
    Fault(
        "some wrong neurons",
        "export/compare.py",
        "if bool((wrong & ~near).any()):",
        "if bool((wrong & ~near).all()):",
        COMPARE,
    ),
    Fault(
        "the caller's inputs",
        "export/compare.py",
        "probes.append(inputs[:, :MOST].reshape(len(inputs), -1, *graph.nodes[0].shape))",
        "pass",
        COMPARE,
    ),
    Fault("start of packed sums", "export/c/gather.py", "lane[:, :4] << 8", "lane[:, 4:8] << 8", GATHER),
    Fault(
        "channels that fire without a spike",
        "export/c/gather.py",
        "(_grouped(layer.threshold, 1) <= 0)",
        "(_grouped(layer.threshold, 1) < 0)",
        GATHER,
    ),
    Fault(
        "rows ahead of a dilated kernel",
        "export/c/gather.py",
        "+ (rows - 1) * g.dilation[0] + 1\n        last",
        "+ rows\n        last",
        GATHER,
    ),
]

FAULTS: list[Fault] = sorted([*OLD, *NEW, *LATER], key=lambda fault: fault.file.endswith(".h"))
"""Kernels come last: they are compiled for each."""
