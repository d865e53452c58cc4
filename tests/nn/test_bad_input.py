"""Every mistake is answered by the argument's name, its value, and what to do."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ultralif as ul
from ultralif.errors import InputError

of_each_kind = pytest.mark.parametrize("name", ["UltraLIF", "AdaLIF"])
"""The checks are those of the base class: one neuron for each kind of state sees them all."""


def assert_refused(call: Callable[[], object], error: type[Exception], *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert isinstance(caught.value, InputError | TypeError), "the command line knows only these"
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"
    assert "\n" not in message


def test_what_has_another_form_is_refused() -> None:
    assert_refused(
        lambda: ul.UltraLIF(eps_range=(0.1,)), InputError, "eps_range", "(0.1,)", "(lowest, highest)"
    )
    assert_refused(lambda: ul.UltraLIF(parameter_shape=5), InputError, "parameter_shape", "5", "(64,)")
    assert_refused(lambda: ul.UltraLIF(eps=torch.tensor([])), InputError, "eps", "empty tensor")
    assert_refused(lambda: ul.LIF(v_reset=math.nan), InputError, "v_reset", "nan", "finite")
    nothing = torch.zeros(0, 2, 3)
    assert_refused(lambda: ul.functional.lif(nothing, leak=0.9, threshold=0.5), InputError, "no time steps")
    assert_refused(lambda: ul.ops.lif(nothing, leak=0.9, threshold=0.5), InputError, "no time steps")


SLIPS = {
    "learn_eps": "yes",
    "batch_first": "no",
    "delayed_reset": 1,
    "v_reset": "0",
    "v_sat": None,
    "eps_range": 1.0,
    "time_constants": 3,
    "parameter_shape": (-3,),
}


@pytest.mark.parametrize("argument", SLIPS)
def test_a_value_of_another_type_is_refused_by_its_name(argument: str) -> None:
    """Above all a text for a flag, which would count as True."""
    value = SLIPS[argument]
    assert_refused(lambda: ul.UltraLIF(**{argument: value}), Exception, argument, str(value))


def test_arguments_are_given_by_name() -> None:
    assert_refused(lambda: ul.UltraLIF(0.9), TypeError, "UltraLIF accepts keyword arguments only", "leak=")

    class Own(ul.Stepped[ul.nn.State]):
        state_type = ul.nn.State

        def __init__(self, gamma: float) -> None:
            super().__init__()
            self.gamma = gamma

    assert Own(0.3).gamma == 0.3


def test_an_eps_below_its_range_is_told_of_the_range() -> None:
    assert_refused(lambda: ul.UltraLIF(eps=0.05), InputError, "another eps_range", "learn_eps=False")
    assert_refused(lambda: ul.LIF(surrogate_slope=500.0, learn_slope=True), InputError, "surrogate_slope")


OUTSIDE = [
    (ul.UltraLIF, "eps", (-1.0, 0.0, 50.0, 0.01, math.nan), "[0.1, 20]"),
    (ul.LIF, "leak", (1.5, 1.0 + 1e-6, 0.0, -0.1), "(0, 1]"),
    (ul.UltraPLIF, "leak", (1.5, 0.0), "(0, 1)"),
    (ul.LIF, "threshold", (math.inf, math.nan), "(-inf, inf)"),
    (ul.FullPLIF, "threshold", (0.0, 1.5), "(0, 1)"),
    (ul.DSpike, "threshold", (0.0, -2.0), "(0, inf)"),
    (ul.DSpike, "sharpness", (0.0,), "[0.1, 100]"),
    (ul.LIF, "surrogate_slope", (-3.0,), "(0, inf)"),
    (ul.AdaLIF, "adapt_strength", (-1.0,), "(0, inf)"),
    (ul.AdaLIF, "adapt_decay", (1.1,), "(0, 1]"),
    (ul.LIF, "synapse", (1.1, -0.5), "(0, 1]"),
    (ul.PLIF, "leak", (1.0,), "(0, 1)"),
]


@pytest.mark.parametrize(("neuron", "name", "values", "interval"), OUTSIDE)
def test_a_constant_outside_of_its_range(
    neuron: type[ul.Neuron], name: str, values: tuple[float, ...], interval: str
) -> None:
    """Learned or not, and as one bad entry among good ones of a tensor."""
    good = {"eps": 1.0, "sharpness": 4.0}.get(name, 0.5)
    for value in values:
        words = (name, str(value), interval, "pass a value inside")
        assert_refused(lambda value=value: neuron(**{name: value}), ValueError, *words)
        among = torch.tensor([good, value])
        assert_refused(lambda among=among: neuron(**{name: among}), ValueError, name, "pass a value inside")


def test_a_leak_of_one_integrates_and_fires() -> None:
    ones = torch.ones(6, 1, 1)
    for options in ({}, {"backend": "reference"}, {"delayed_reset": True, "reset": "subtract"}):
        neuron = ul.LIF(leak=1.0, threshold=1.5, **options)
        expected = [0, 1, 0, 1, 1, 0] if "reset" in options else [0, 1, 0, 1, 0, 1]
        assert neuron(ones).flatten().tolist() == expected
    neuron.leak = 0.5
    neuron.leak = 1.0
    assert neuron.leak == 1.0 and ul.UltraLIF(leak=1.0)(ones).shape == ones.shape


def test_thresholds_may_be_zero_or_negative() -> None:
    """Where no formula divides by them, as in the released code of the paper."""
    current = torch.zeros(2, 1, 3)
    assert ul.LIF(threshold=-0.5)(current).all() and not ul.LIF(threshold=0.0)(current).any()
    at_rest = ul.UltraDLIF(threshold=0.0, eps=1.0)(current)[0]
    torch.testing.assert_close(at_rest, torch.full((1, 3), 0.75))  # sigmoid(log 3)


@of_each_kind
@pytest.mark.parametrize("value", ["0.5", None, [0.5, 0.6]])
def test_a_constant_of_another_type(name: str, value: object) -> None:
    assert_refused(
        lambda: ul.NEURONS[name](threshold=value), TypeError, "threshold", repr(value), "number or a tensor"
    )


@pytest.mark.parametrize("bounds", [(2.0, 0.5), (0.0, 5.0), (-1.0, 5.0), (1.0, 1.0), (0.1, math.inf)])
@pytest.mark.parametrize(
    ("neuron", "argument", "learn"),
    [
        (ul.UltraLIF, "eps_range", {}),
        (ul.DSpike, "sharpness_range", {}),
    ],
)
def test_a_range_that_is_none(neuron: type[ul.Neuron], argument: str, learn: dict, bounds: tuple) -> None:
    assert_refused(
        lambda: neuron(**{argument: bounds}, **learn), ValueError, argument, str(bounds), "(lowest, highest)"
    )


def test_a_fixed_eps_may_lie_outside_of_the_range_of_a_learned_one() -> None:
    assert ul.UltraLIF(eps=0.01, learn_eps=False).eps == 0.01
    assert_refused(lambda: ul.UltraLIF(eps=-0.01, learn_eps=False), ValueError, "eps", "-0.01", "(0, inf)")


@of_each_kind
def test_a_learned_threshold_must_be_a_sigmoid(name: str) -> None:
    for value in (1.0, 1.5):
        assert_refused(
            lambda value=value: ul.NEURONS[name](threshold=value, learn_threshold=True),
            ValueError,
            "a learned threshold",
            str(value),
            "(0, 1)",
        )


@of_each_kind
def test_a_parameter_shape_that_does_not_fit_the_value(name: str) -> None:
    assert_refused(
        lambda: ul.NEURONS[name](threshold=torch.full((3,), 0.5), learn_threshold=True, parameter_shape=(4,)),
        ValueError,
        "threshold",
        "(3,)",
        "(4,)",
        "leave parameter_shape out",
    )


@pytest.mark.parametrize(
    ("neuron", "argument"),
    [
        (ul.LIF, "surrogate"),
        (ul.LIF, "reset"),
        (ul.LIF, "mode"),
    ],
)
def test_an_unknown_choice(neuron: type[ul.Neuron], argument: str) -> None:
    assert_refused(lambda: neuron(**{argument: "torus"}), ValueError, argument, "'torus'", "one of")


ELSEWHERE = {
    "esp": (ul.UltraLIF, "UltraLIF has no argument 'esp'; did you mean 'eps'?"),
    "beta": (ul.AdaLIF, "AdaLIF has no argument 'beta'; beta is called leak here"),
    "tau": (ul.PLIF, "tau is called leak here: leak = 1 - 1 / tau for SpikingJelly's tau"),
    "decay": (ul.LIF, "decay is called leak here"),
    "alpha": (ul.LIF, "alpha is called synapse here: for the alpha of a surrogate function, use"),
    "reset_mechanism": (
        ul.UltraDPLIF,
        "UltraDPLIF has no argument 'reset_mechanism'; reset_mechanism is called reset",
    ),
    "surrogate_function": (ul.LIF, "surrogate_function is called surrogate here: 'sigmoid', 'atan'"),
    "spike_grad": (ul.UltraLIF, "spike_grad is called surrogate here, but UltraLIF has none"),
    "quux": (ul.LIF, "LIF has no argument 'quux'; it has threshold, v_reset"),
}


@pytest.mark.parametrize("argument", ELSEWHERE)
def test_an_unknown_argument(argument: str) -> None:
    """The neuron is named, and the argument that is meant: a slip, or another library's word."""
    neuron, words = ELSEWHERE[argument]
    assert_refused(lambda: neuron(**{argument: 0.9}), TypeError, words)


def test_options_that_a_neuron_lacks() -> None:
    assert_refused(lambda: ul.LIF(reset="saturate"), ValueError, "reset", "zero, subtract, none")
    assert_refused(lambda: ul.UltraDLIF(**{"leak": 0.8}), TypeError, "UltraDLIF", "'leak'")
    assert_refused(lambda: ul.UltraDLIF(coupled_axis=1), ValueError, "coupled_axis", "1", "-1")
    deep = ul.UltraDLIF(coupled_axis=-3)
    assert_refused(lambda: deep(torch.zeros(3, 2, 4)), ValueError, "coupled_axis=-3", "(3, 2, 4)")

    class Plain(ul.Stepped[ul.nn.State]):
        state_type = ul.nn.State

        @staticmethod
        def formula(current: Tensor, v: Tensor, **constants: object) -> tuple[Tensor, Tensor]:
            return current, v

    assert_refused(lambda: Plain(reset="none"), ValueError, "reset", "Plain", "choices")


@of_each_kind
def test_an_unknown_mode(name: str) -> None:
    neuron = ul.NEURONS[name]()
    assert_refused(lambda: setattr(neuron, "mode", "sharp"), ValueError, "mode", "'sharp'", "hard", name)
    assert_refused(
        lambda: ul.set_mode(neuron, "sharp"), ValueError, "mode", "'sharp'", "soft, hard, tropical"
    )


def test_modes_need_neurons() -> None:
    assert_refused(
        lambda: ul.set_mode(nn.Linear(2, 3), "hard"), ValueError, "net", "Linear", "pass the network"
    )
    context = ul.mode(nn.ReLU(), "hard")
    assert_refused(lambda: context.__enter__(), ValueError, "net", "ReLU")


@of_each_kind
@pytest.mark.parametrize(
    ("current", "words"),
    [
        (torch.zeros(3, 2, 4, dtype=torch.int64), ("torch.int64", ".float()")),
        (torch.zeros(3, 2, 4, dtype=torch.bool), ("torch.bool", ".float()")),
        (torch.zeros(3, 2, 4, dtype=torch.complex64), ("torch.complex64", "floating-point")),
        ([[[0.0]]], ("list", "torch.as_tensor")),
        (None, ("NoneType", "tensor")),
    ],
    ids=["int64", "bool", "complex64", "list", "none"],
)
def test_a_current_of_another_type(name: str, current: object, words: tuple[str, ...]) -> None:
    neuron = ul.NEURONS[name]()
    for call in (neuron, neuron.run, neuron.step):
        assert_refused(lambda call=call: call(current), TypeError, "current", *words)


@of_each_kind
@pytest.mark.parametrize("shape", [(), (5,), (5, 2)])
def test_a_current_without_features(name: str, shape: tuple[int, ...]) -> None:
    neuron = ul.NEURONS[name]()
    words = ("current", "[T, B, *features]", str(shape), "unsqueeze")
    assert_refused(lambda: neuron(torch.zeros(shape)), ValueError, *words)
    if len(shape) < 2:
        assert_refused(lambda: neuron.step(torch.zeros(shape)), ValueError, "[B, *features]", str(shape))


@of_each_kind
def test_no_time_steps(name: str) -> None:
    neuron = ul.NEURONS[name]()
    assert_refused(lambda: neuron(torch.zeros(0, 2, 4)), ValueError, "current", "(0, 2, 4)", "at least one")
    swapped = ul.NEURONS[name](batch_first=True)
    assert_refused(lambda: swapped(torch.zeros(2, 0, 4)), ValueError, "current", "no time steps")


@of_each_kind
def test_a_state_of_another_batch_or_kind(name: str) -> None:
    neuron = ul.NEURONS[name]()
    _, state = neuron.run(torch.zeros(3, 2, 4))
    for call, current in ((neuron.run, torch.zeros(3, 5, 4)), (neuron.step, torch.zeros(5, 4))):
        assert_refused(
            lambda call=call, current=current: call(current, state),
            ValueError,
            "state",
            "(2, 4)",
            "(5, 4)",
            "state=None",
        )
    other = ul.LIF() if name == "AdaLIF" else ul.AdaLIF()
    _, foreign = other.run(torch.zeros(3, 2, 4))
    for wrong in (foreign, torch.zeros(2, 4), (torch.zeros(2, 4),), {}):
        assert_refused(
            lambda wrong=wrong: neuron.run(torch.zeros(3, 2, 4), wrong),
            TypeError,
            "state",
            type(state).__name__,
            type(wrong).__name__,
            "None to start at rest",
        )


@of_each_kind
@pytest.mark.parametrize("shape", [(7,), (2, 4), (1, 4)])
def test_a_constant_that_does_not_fit_the_features(name: str, shape: tuple[int, ...]) -> None:
    """Also where torch would broadcast it, over the batch or into a larger output."""
    neuron = ul.NEURONS[name](threshold=torch.full(shape, 0.5))
    words = ("threshold", str(shape), "(4,)", "parameter_shape")
    assert_refused(lambda: neuron(torch.zeros(3, 2, 4)), ValueError, *words)
    assert_refused(lambda: neuron.step(torch.zeros(2, 4)), ValueError, *words)
    grown = ul.NEURONS[name](threshold=torch.full((4,), 0.5))
    assert_refused(lambda: grown(torch.zeros(3, 2, 1)), ValueError, "threshold", "(4,)", "(1,)")


@pytest.mark.parametrize("sizes", [(), (4,), (4, 3), (4, 0, 3), (4, 5, -1)])
def test_sizes_of_a_network(sizes: tuple[int, ...]) -> None:
    assert_refused(lambda: ul.Network(sizes), ValueError, "sizes", str(sizes), "(784, 64, 10)")


def test_slips_with_a_network() -> None:
    assert_refused(lambda: ul.Network(784, 64, 10), TypeError, "sizes", "784", "Network((784, 64, 10))")
    assert_refused(lambda: ul.Network((4, 5, 3), ul.UltraLIF()), TypeError, "UltraLIF", "neuron_options")
    assert_refused(lambda: ul.Network((4, 5, 3), nn.ReLU), TypeError, "neuron", "ReLU", "UltraDLIF")


def test_other_arguments_of_a_network() -> None:
    assert_refused(
        lambda: ul.Network((4, 5, 3), neuron="Izhikevich"), ValueError, "neuron", "'Izhikevich'", "UltraLIF"
    )
    assert_refused(
        lambda: ul.Network((4, 5, 3), readout="max"), ValueError, "readout", "'max'", "linear, spiking"
    )
    assert_refused(
        lambda: ul.Network((4, 5, 3), neuron_options={"batch_first": True}),
        ValueError,
        "batch_first",
        "[T, B, *input]",
    )


@pytest.mark.parametrize("shape", [(3, 2, 5), (2, 4), (4,), (3, 2, 2, 3)])
def test_input_of_a_network(shape: tuple[int, ...]) -> None:
    net = ul.Network((4, 5, 3))
    assert_refused(lambda: net(torch.zeros(shape)), ValueError, "input", "4 values", str(shape), "unsqueeze")


def test_input_of_a_network_that_is_not_a_frame() -> None:
    net = ul.Network((4, 5, 3))
    assert_refused(
        lambda: net(torch.zeros(3, 2, 4, dtype=torch.uint8)), TypeError, "input", "uint8", ".float()"
    )
    assert_refused(lambda: net(torch.zeros(0, 2, 4)), ValueError, "no time steps")
    assert_refused(lambda: net.step(torch.zeros(4)), ValueError, "input", "[B, *input]", "(4,)")
    _, states = net.step(torch.zeros(2, 4))
    assert_refused(lambda: net.step(torch.zeros(2, 4), states * 2), ValueError, "states", "2 entries", "None")
    assert_refused(lambda: net.step(torch.zeros(3, 4), states), ValueError, "state", "(2, 5)", "(3, 5)")
