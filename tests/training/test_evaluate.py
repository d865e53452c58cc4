"""What is reported is what a direct computation gives, on the whole test set, in every mode."""

import json
from pathlib import Path

import pytest
import torch

import ultralif as ul
from training.small import small
from ultralif.data import Loader, load
from ultralif.export.harden import gap
from ultralif.functional import Mode
from ultralif.stack import Stack
from ultralif.training import RunConfig, Store, train, train_stack
from ultralif.training.batches import EVALUATION, load_data
from ultralif.training.evaluate import evaluate, reevaluate
from ultralif.training.networks import build_network

NEURONS = ("UltraLIF", "UltraDPLIF", "SoftLIF", "AdaLIF", "DSpike")


def directly(network: ul.Network, config: RunConfig, mode: Mode) -> tuple[float, list[float]]:
    """Return accuracy and spike rates by calling the network on all test samples at once."""
    test = load(config.dataset).test
    loader = Loader(test, batch_size=256, timesteps=config.timesteps, shuffle=False)
    batches = list(loader.epoch(EVALUATION))
    x, labels = torch.cat([x for x, _ in batches], 1).double(), torch.cat([y for _, y in batches])
    with torch.no_grad(), ul.mode(network, mode):
        out = network.observe(x)
    accuracy = 100 * (out.logits.argmax(1) == labels).double().mean().item()
    return accuracy, [rate.mean().item() for rate in out.rates]


@pytest.mark.parametrize("changes", [{}, {"hidden": (6, 5), "readout": "spiking"}], ids=["linear", "spiking"])
def test_each_mode_against_a_direct_computation(changes: dict, store: Store) -> None:
    configs = [small(**changes, neuron=name) for name in NEURONS]
    for result in train_stack(configs, store):
        config = store.read(result.id).config
        network = ul.load(store.path(result.id))
        _, neuron = next(network.layers())
        assert set(result.accuracy) == set(neuron.modes)
        for mode in neuron.modes:
            accuracy, rates = directly(network, config, mode)
            assert result.accuracy[mode] == pytest.approx(accuracy, abs=1e-9), (config, mode)
            assert list(result.by_mode[mode].spike_rates) == pytest.approx(rates, abs=1e-12)
            sizes = config.hidden
            mean = sum(n * r for n, r in zip(sizes, rates, strict=False)) / sum(sizes)
            assert result.spike_rate[mode] == pytest.approx(mean, abs=1e-12)


def test_energy_of_a_run_by_hand(store: Store) -> None:
    """64 inputs, 6 and 5 hidden neurons, 10 classes, T = 2; inputs are binary spikes."""
    config = small(hidden=(6, 5), neuron="UltraLIF")
    (result,) = train_stack([config], store)
    x = torch.cat([x for x, _ in Loader(load("digits").test, 256, 2, shuffle=False).epoch(EVALUATION)], 1)
    active = x.sum().item() / x.shape[1]  # input spikes of a sample, over both steps
    first, second = result.by_mode["hard"].spike_rates
    synapses = 64 * 6 + 6 * 5 + 5 * 10
    rate = result.spike_rate["hard"]
    energy = result.to_dict()["energy"]
    assert energy["relative_sops"]["hard"] == pytest.approx(2 * rate)
    assert energy["snn_picojoules"]["hard"] == pytest.approx(2 * rate * synapses * 0.9)
    assert energy["ann_picojoules"] == pytest.approx(synapses * 4.6)
    hard = energy["operations"]["hard"]
    acs = active * 6 + 2 * first * 6 * 5 + 2 * second * 5 * 10
    assert hard == pytest.approx({"macs": 0.0, "acs": acs, "picojoules": 0.9 * acs})
    soft = energy["operations"]["soft"]
    macs = 2 * 6 * 5 + 2 * 5 * 10
    assert soft == pytest.approx(
        {"macs": macs, "acs": active * 6, "picojoules": 4.6 * macs + 0.9 * active * 6}
    )


def test_real_inputs_multiply(store: Store) -> None:
    """A pixel that is fed as a number costs a multiplication where it is not zero."""
    (result,) = train_stack([small(encoding="constant", epochs=1)], store)
    pixels = load("digits").test.batch(torch.arange(360)).count_nonzero().item() / 360
    hard = result.to_dict()["energy"]["operations"]["hard"]
    assert hard["macs"] == pytest.approx(2 * pixels * 6, rel=1e-6)
    assert hard["acs"] == pytest.approx(2 * result.spike_rate["hard"] * 6 * 10)


def test_history_has_an_entry_for_every_epoch(store: Store) -> None:
    config = small(neuron="UltraPLIF", epochs=3)
    train_stack([config], store)
    run = store.read(config.id)
    assert len(run.history) == 3
    for epoch in run.history:
        assert set(epoch) == {
            "loss", "accuracy", "spike_rate", "soft_rate", "hard_rate", "eps", "leak",
        }  # fmt: skip
        assert all(isinstance(value, float) for value in epoch.values())
        assert 0 <= epoch["hard_rate"] <= 1 and 0 < epoch["soft_rate"] < 1
    assert len({epoch["eps"] for epoch in run.history}) == 3, "the temperature is learned"
    assert len({epoch["leak"] for epoch in run.history}) == 3, "and so is the leak"
    assert run.history[-1]["eps"] == pytest.approx(run.result.eps)
    assert run.history[-1]["leak"] == pytest.approx(run.result.leak)


def test_history_of_a_neuron_without_a_temperature(store: Store) -> None:
    train_stack([small(neuron="LIF")], store)
    (first, _) = store.read(small(neuron="LIF").id).history
    assert first["eps"] is None
    assert first["leak"] == 0.9 and 0 <= first["hard_rate"] <= 1


def test_training_accuracy_is_that_of_the_samples_seen(store: Store) -> None:
    """With a rate of learning that moves nothing, it is the accuracy of the network on the training set."""
    config = small(learning_rate=1e-300, epochs=1, encoding="constant")
    train_stack([config], store)
    network = build_network(config).double()
    train_set = load("digits").train
    pixels = train_set.batch(torch.arange(len(train_set))).double().flatten(1) / 255
    with torch.no_grad():
        guess = network(pixels.expand(2, -1, -1)).argmax(1)
    expected = 100 * (guess == train_set.labels).double().mean().item()
    assert store.read(config.id).history[0]["accuracy"] == pytest.approx(expected, abs=0.2)


class TestValidation:
    """A held-out part of the training set."""

    def test_it_is_held_out(self) -> None:
        config = small(validation=0.25)
        data = load_data(config, torch.device("cpu"))
        whole = load_data(small(), torch.device("cpu")).train
        assert data.validation is not None
        assert len(data.train) + len(data.validation) == len(whole)
        rows = set(data.train.rows.tolist()), set(data.validation.rows.tolist())
        assert not rows[0] & rows[1] and rows[0] | rows[1] == set(whole.rows.tolist())
        for label in range(10):
            part = (data.validation.labels == label).sum() / (whole.labels == label).sum()
            assert part == pytest.approx(0.25, abs=0.01)

    def test_every_seed_holds_out_the_same(self) -> None:
        parts = [
            load_data(small(validation=0.1, seed=seed), torch.device("cpu")).validation for seed in (1, 2)
        ]
        assert torch.equal(parts[0].rows, parts[1].rows)

    def test_it_is_reported_beside_the_test_set(self, store: Store) -> None:
        config = small(validation=0.25, neuron="UltraLIF")
        (result,) = train_stack([config], store)
        assert result.validation is not None and set(result.validation) == set(result.accuracy)
        data = load_data(config, torch.device("cpu"))
        stack = Stack([ul.load(store.path(config.id))])
        (again,) = evaluate(stack, [config], data, "validation")
        assert again.accuracy == pytest.approx(result.validation)
        assert result.validation != result.accuracy

    def test_without_one_nothing_is_said(self, store: Store) -> None:
        (result,) = train_stack([small()], store)
        assert result.validation is None


def test_evaluating_once_more_gives_the_same(store: Store) -> None:
    for name in ("UltraLIF", "AdaLIF"):
        config = small(neuron=name)
        (result,) = train_stack([config], store)
        again = reevaluate(store, config.id, compare=gap)  # type: ignore[arg-type]
        assert again.result.by_mode == result.by_mode
        assert list(again.gap) == list(result.accuracy)


def test_annealed_temperature_is_kept_by_the_network(store: Store) -> None:
    config = small(anneal=(2.0, 0.5))
    (result,) = train_stack([config], store)
    assert result.eps == pytest.approx(0.5)
    _, neuron = next(ul.load(store.path(config.id)).layers())
    assert float(neuron.constant("eps")) == pytest.approx(0.5)


def test_a_run_in_python(tmp_path: Path) -> None:
    """`ul.train` trains once; the second call reads."""
    config = small(precision="float32")
    first = ul.train(config, runs_dir=tmp_path)
    again = train(config, runs_dir=tmp_path)
    assert isinstance(first, ul.Result) and again.to_dict() == json.loads(json.dumps(first.to_dict()))
    assert first.epochs == config.epochs and first.status == "done"
    assert Path(first.path, "model.safetensors").is_file()
    assert {"ultralif", "torch", "device", "precision", "data_sha256"} <= set(first.environment)


def test_the_config_of_a_run_can_be_run_again(tmp_path: Path) -> None:
    config = small(neuron="UltraDLIF", sparsity=0.01, eps=0.7)
    first = ul.train(config, runs_dir=tmp_path / "one")
    written = json.loads(Path(first.path, "config.json").read_text())
    again = ul.train(RunConfig.from_dict(written), runs_dir=tmp_path / "two")
    ours, theirs = (Path(result.path, "model.safetensors").read_bytes() for result in (first, again))
    assert again.id == first.id and ours == theirs


class InLoop(torch.nn.Module):
    """The same layers, called step by step."""

    def __init__(self, net: torch.nn.Sequential) -> None:
        super().__init__()
        self.first, self.neuron, self.last = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, out = None, []
        for current in x:
            spikes, state = self.neuron.step(self.first(current), state)
            out.append(self.last(spikes))
        return torch.stack(out)


class Folded(InLoop):
    """The same layers, with time folded into the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, last = (ul.TimeDistributed(part) for part in (self.first, self.last))
        return last(self.neuron(first(x)))


class ConvolutionInLoop(torch.nn.Module):
    """A convolution, called step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.neuron, self.last = torch.nn.Conv2d(1, 2, 3), ul.LIF(), torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, out = None, []
        for frame in x:
            spikes, state = self.neuron.step(self.conv(frame), state)
            out.append(self.last(spikes.flatten(1)))
        return torch.stack(out)


def test_steps_beyond_every_sample_cost_nothing(tmp_path: Path) -> None:
    x = (torch.rand(20, 5, 1, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    data = x, torch.arange(20) % 2, torch.full((20,), 3)
    result = ul.train(
        ConvolutionInLoop(), data, data, events=True, epochs=1, runs_dir=tmp_path, progress=False
    )
    uses = torch.tensor([1.0, 2.0, 2.0, 1.0])  # windows that hold a row, or a column
    expected = 2 * (x[:, :3] * uses * uses[:, None]).sum().item() / 20
    assert result.by_mode["hard"].layers["conv"].acs == pytest.approx(expected)


def test_a_computed_weight_is_counted(tmp_path: Path) -> None:
    norm = torch.nn.utils.parametrizations.weight_norm
    x = (torch.rand(20, 6, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    net = torch.nn.Sequential(norm(torch.nn.Linear(6, 8)), ul.LIF(), norm(torch.nn.Linear(8, 2)))
    data, options = (x, torch.arange(20) % 2), {"timesteps": 3, "encoding": "constant"}
    result = ul.train(net, data, data, epochs=1, runs_dir=tmp_path, progress=False, **options)
    assert result.by_mode["hard"].layers["0"].acs == pytest.approx(3 * x.sum().item() / 20 * 8)


@pytest.mark.parametrize("form", ["sequence", "loop", "folded", "perceptron"])
def test_padded_steps_cost_nothing(form: str, tmp_path: Path) -> None:
    """6 inputs, 8 neurons, 2 classes; samples of 2 and of 5 steps, with padding that would fire."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([2, 5] * 10)
    x = (torch.rand(20, 5, 6, generator=generator) < 0.5).float()
    x[torch.arange(5) >= lengths[:, None]] = 7.0
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 8), ul.LIF(), torch.nn.Linear(8, 2))
    net = {
        "sequence": lambda: layers,
        "loop": lambda: InLoop(layers),
        "folded": lambda: Folded(layers),
        "perceptron": lambda: ul.Network((6, 8, 2), "LIF"),
    }[form]()
    data = x, torch.arange(20) // 2 % 2, lengths
    result = ul.train(net, data, data, events=True, epochs=1, runs_dir=tmp_path, progress=False)
    hard, mask = result.by_mode["hard"], torch.arange(5) < lengths[:, None]
    inputs, (mean,) = x[mask].sum().item() / 20, hard.spike_rates
    if form == "perceptron":  # its readout takes the mean spikes, so their number follows from the rate
        spikes = 3.5 * 8 * mean
    else:
        spikes = layers[:2](x.transpose(0, 1))[mask.T].sum().item() / 20
    assert hard.operations.macs == 0
    assert hard.operations.acs == pytest.approx(inputs * 8 + spikes * 2, rel=1e-5)
    assert hard.relative_sops == pytest.approx(3.5 * mean)
    assert result.ann_picojoules == pytest.approx(4.6 * (6 * 8 + 8 * 2))
