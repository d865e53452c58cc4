"""Exported C: compiled without a warning, run under sanitizers, equal to the simulator bit for bit."""

import ctypes
import re
import shutil
import subprocess
import sys

import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st
from torch import Tensor

import ultralif as ul
from export.c_program import SANITIZE, assert_equal_bit_for_bit, classify, make
from export.networks import SHAPE, events, made
from ultralif.errors import InputError
from ultralif.export.c import Footprint, footprint, to_c
from ultralif.export.c.plan import make_plan
from ultralif.export.c.source import arrays
from ultralif.export.c.text import Array
from ultralif.export.harden import spike_trains
from ultralif.export.integer import IntegerNetwork
from ultralif.export.quantize import quantize

COMPILERS = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"there is no {name}"))
    for name in ("gcc", "clang")
]
KINDS = [
    ("UltraLIF", "hard", {}),
    ("UltraLIF", "tropical", {}),
    ("UltraDLIF", "hard", {"clip_membrane": True}),
    ("UltraDLIF", "tropical", {"bits": 16, "clip_membrane": True}),
    ("UltraDPLIF", "hard", {"leak": "shift"}),
    ("UltraDPLIF", "tropical", {"bits": 16, "clip_membrane": True}),
    ("LIF", "hard", {}),
    ("LIF", "hard", {"bits": 16, "clip_membrane": True}),
    ("LIF", "hard", {"leak": "shift"}),
    ("UltraLIF", "hard", {"weight_bits": 4}),
]
TYPICAL = [("UltraDLIF", "tropical"), ("UltraLIF", "hard"), ("LIF", "hard")]


def random_network(neuron: str, seed: int, sizes=(30, 17, 9, 4), readout="linear", **options) -> ul.Network:
    torch.manual_seed(seed)
    net = ul.Network(sizes, neuron=neuron, neuron_options=options, readout=readout)
    with torch.no_grad():
        for linear in net.linears:
            linear.weight.mul_(3)
    return net


def counts(seed: int, steps=8, batch=20, inputs=30, most=3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, most + 1, (steps, batch, inputs), generator=generator)
    return x * (torch.rand(x.shape, generator=generator) < 0.3)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("neuron", "mode", "options"), KINDS)
def test_random_networks(tmp_path, compiler, neuron, mode, options):
    net = random_network(neuron, seed=1, readout="spiking" if options.get("leak") else "linear")
    x = counts(2)
    integer = quantize(net, mode=mode, timesteps=8, input_max=3, **options)
    to_c(integer, tmp_path / "c", x[:, :3])
    make(tmp_path / "c", compiler, f"-O1 -Wconversion -Wshadow -Wcast-qual {SANITIZE}", "model")
    output = integer.run(x)
    assert all(0 < spikes.float().mean() < 1 for spikes in output.spikes)
    assert_equal_bit_for_bit(tmp_path / "c", integer, x)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_network(tmp_path_factory, data):
    """Sizes, constants, inputs and options at random; what fits no integers must say so."""
    draw = data.draw
    neuron, mode, _ = draw(st.sampled_from(KINDS))
    sizes = draw(st.lists(st.integers(1, 40), min_size=3, max_size=5))
    constants = {"threshold": draw(st.floats(0.05, 3)), "v_reset": draw(st.sampled_from((0.0, -0.3, 0.04)))}
    constants |= {"eps": draw(st.floats(0.1, 5))} if neuron.startswith("Ultra") else {}
    seed, steps, most = draw(st.integers(0, 10**6)), draw(st.integers(1, 12)), draw(st.integers(1, 9))
    net = random_network(neuron, seed, sizes, draw(st.sampled_from(("linear", "spiking"))), **constants)
    with torch.no_grad():
        net.linears[0].weight.mul_(draw(st.floats(0.01, 30)))
    options = {"bits": draw(st.sampled_from((16, 32))), "clip_membrane": draw(st.booleans())}
    options |= {"leak": draw(st.sampled_from(("multiply", "shift"))), "table_bits": draw(st.integers(3, 10))}
    options |= {"weight_bits": draw(st.sampled_from((4, 8, 16)))}
    try:
        integer = quantize(net, mode=mode, timesteps=steps, input_max=most, **options)
    except InputError:
        event("refused")
        return
    folder = tmp_path_factory.mktemp("any") / "c"
    x = counts(seed, steps, 10, sizes[0], most)
    x[:, 0] = most  # as much as was allowed
    to_c(integer, folder, x)
    make(folder, "gcc", f"-O1 -Wconversion {SANITIZE}", "model")
    assert_equal_bit_for_bit(folder, integer, x)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("dataset", ["mnist", "nmnist"])
@pytest.mark.parametrize(
    ("neuron", "mode"), [("UltraDLIF", "tropical"), ("UltraLIF", "hard"), ("LIF", "hard")]
)
def test_a_thousand_real_samples(request, tmp_path, train, compiler, dataset, neuron, mode):
    digits = request.getfixturevalue(dataset)
    integer = quantize(train(neuron, digits), mode=mode, timesteps=10, input_max=int(digits.test_x.max()))
    to_c(integer, tmp_path / "c", digits.train_x[:, :4])
    make(tmp_path / "c", compiler, f"-O1 {SANITIZE}", "model")
    assert digits.test_x.shape[1] == 1000
    assert_equal_bit_for_bit(tmp_path / "c", integer, digits.test_x)


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize("reset", ["none", "saturate"])
def test_resets_without_a_spike(tmp_path, reset):
    """Membranes that remember, in additions and comparisons alone."""
    net = random_network("UltraLIF", 5, reset=reset, time_constants=(2, 20), v_sat=0.7)
    integer = quantize(net, mode="tropical", timesteps=8, input_max=3)
    x = counts(6)
    to_c(integer, tmp_path / "c", x[:, :3])
    make(tmp_path / "c", "gcc", f"-O1 -Wconversion -Wshadow -Wcast-qual {SANITIZE}", "model")
    assert_equal_bit_for_bit(tmp_path / "c", integer, x)


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("reset", ["zero", "subtract", "none"])
@pytest.mark.parametrize("neuron", ["LIF", "UltraLIF", "UltraDLIF"])
@pytest.mark.parametrize("clip", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_reset(tmp_path, neuron, reset, delayed, clip):
    """The simulator spikes like floats, and C is equal to it, with a reset now or by the last spike."""
    net = random_network(neuron, 7, reset=reset, delayed_reset=delayed)
    ul.set_mode(net, "hard")
    integer = quantize(net, timesteps=8, input_max=3, weight_bits=16, clip_membrane=clip, bits=32)
    x = counts(6)
    spikes = spike_trains(net, x.float())
    differing = [(a.bool() != b).double().mean() for a, b in zip(spikes, integer.run(x).spikes, strict=False)]
    assert max(differing) < 0.05
    to_c(integer, tmp_path / "c", x[:, :3])
    make(tmp_path / "c", "gcc", f"-O1 -Wconversion -Wshadow -Wcast-qual {SANITIZE}", "model")
    assert_equal_bit_for_bit(tmp_path / "c", integer, x)


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize("sizes", [(3, 1, 2), (3, 2, 2), (1, 3, 1)])
def test_rings_of_one_and_two(tmp_path, sizes):
    integer = quantize(random_network("UltraDLIF", 3, sizes), timesteps=8, input_max=3)
    x = counts(4, inputs=sizes[0])
    to_c(integer, tmp_path / "c", x)
    make(tmp_path / "c", "gcc", f"-O1 {SANITIZE}", "model")
    assert_equal_bit_for_bit(tmp_path / "c", integer, x)


class State(ctypes.Structure):
    """A model_state, as large as it may be."""

    _fields_ = (("words", ctypes.c_int32 * 1024),)


@pytest.fixture
def library(tmp_path) -> tuple[ctypes.CDLL, IntegerNetwork]:
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    integer = quantize(random_network("UltraLIF", 5), timesteps=8, max_events=40)
    folder = tmp_path / "c"
    to_c(integer, folder, counts(6, batch=2, most=1))
    sources = [folder / "model.c", folder / "selftest.c"]
    subprocess.run(["gcc", "-shared", "-fPIC", "-std=c99", *sources, "-o", folder / "model.so"], check=True)
    return ctypes.CDLL(str(folder / "model.so")), integer


def test_events_in_any_order_are_a_frame(library):
    model, integer = library
    x = counts(7, batch=1, most=1)
    by_frame, by_event = State(), State()
    for state in (by_frame, by_event):
        model.model_reset(ctypes.byref(state))
    for step in x[:, 0]:
        assert model.model_frame(ctypes.byref(by_frame), bytes(step.tolist())) == 0
        for index in reversed(step.nonzero().flatten().tolist()):
            assert model.model_event(ctypes.byref(by_event), index) == 0
        assert model.model_tick(ctypes.byref(by_event)) == 0
    assert bytes(by_frame) == bytes(by_event)
    assert model.model_class(ctypes.byref(by_event)) == int(integer.run(x).scores.argmax())


def test_what_could_overflow_is_refused(library):
    model, integer = library
    state = State()
    model.model_reset(ctypes.byref(state))
    assert model.model_event(ctypes.byref(state), integer.inputs) == -1
    assert [model.model_event(ctypes.byref(state), 0) for _ in range(41)] == [0] * 40 + [-1]
    assert [model.model_tick(ctypes.byref(state)) for _ in range(9)] == [0] * 8 + [-1]
    assert model.model_event(ctypes.byref(state), 0) == -1
    model.model_reset(ctypes.byref(state))
    assert model.model_frame(ctypes.byref(state), bytes([2] * 30)) == -1
    assert model.model_selftest(ctypes.byref(state)) == 0


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_the_self_test_notices_one_changed_weight(tmp_path):
    integer = quantize(random_network("LIF", 8), timesteps=8, input_max=3)
    to_c(integer, tmp_path / "c", counts(9))
    weights = tmp_path / "c" / "weights.h"
    text = weights.read_text()
    first = re.search(r"weight_1\[30\]\[17\] = \{\s*\{\s*(-?\d+)", text)
    weights.write_text(text[: first.start(1)] + str(int(first[1]) - 20) + text[first.end(1) :])
    make(tmp_path / "c", "gcc", "-O1", "model")
    done = subprocess.run([tmp_path / "c" / "model"], input=b"", capture_output=True, check=False)
    assert done.returncode == 1
    assert b"self-test: a constant in weights.h has changed" in done.stderr


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_counters_agree_with_the_simulator(tmp_path):
    integer = quantize(random_network("LIF", 10), timesteps=8, input_max=3)
    x = counts(11)
    to_c(integer, tmp_path / "c", x)
    make(tmp_path / "c", "gcc", "-O1 -DMODEL_COUNT", "model")
    lines = classify(tmp_path / "c", integer, x)
    output = integer.run(x)
    assert sum(int(line[-1]) for line in lines) == sum(int(spikes.sum()) for spikes in output.spikes)


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_the_tropical_model_adds_and_compares_only(tmp_path):
    """No library, no floating point, no multiplication: seen in the machine code."""
    for neuron in ("UltraLIF", "UltraDLIF"):
        integer = quantize(random_network(neuron, 12, sizes=(64, 64, 16)), mode="tropical", timesteps=8)
        folder = tmp_path / neuron
        to_c(integer, folder, counts(13, inputs=64, most=1))
        make(folder, "gcc", "-O1", "model.o")
        undefined = subprocess.run(["nm", "-u", folder / "model.o"], capture_output=True, check=True).stdout
        assert undefined.replace(b"_GLOBAL_OFFSET_TABLE_", b"").replace(b"U", b"").strip() == b""
        code = subprocess.run(["objdump", "-d", folder / "model.o"], capture_output=True, check=True).stdout
        functions = re.split(r"\n\n[0-9a-f]+ <(\w+)>:", code.decode())
        assert "model_tick" in functions
        for name, body in zip(functions[1::2], functions[2::2], strict=True):
            assert "xmm" not in body
            assert "mul" not in body or name in ("mix", "model_hash", "model_constants")


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_the_budget_is_checked_by_the_compiler_too(tmp_path):
    integer = quantize(random_network("LIF", 14), timesteps=8, input_max=3)
    size = to_c(integer, tmp_path / "c", counts(15))
    assert size == footprint(integer)
    header = tmp_path / "c" / "model.h"
    text = header.read_text()
    for name, value in (("BUDGET", size.total), ("ROM", size.rom), ("RAM", size.ram)):
        assert f"MODEL_{name}_BYTES {value}" in text
        header.write_text(text.replace(f"MODEL_{name}_BYTES {value}", f"MODEL_{name}_BYTES {value - 1}"))
        with pytest.raises(subprocess.CalledProcessError):
            make(tmp_path / "c", "gcc", "-O1", "model.o")
    header.write_text(text)
    make(tmp_path / "c", "gcc", "-O1", "model.o")


@pytest.mark.parametrize(("bits", "membranes"), [(16, 52), (32, 104)])
def test_the_footprint_is_counted_by_hand(bits, membranes):
    integer = quantize(random_network("UltraLIF", 16), mode="tropical", bits=bits, clip_membrane=True)
    weights = 30 * 17 + 17 * 9 + 9 * 4
    constants = (17 + 9 + 4) * (1 + 4) + (17 + 9) * (bits // 8 + 4)  # all resets are 0, which needs no array
    assert footprint(integer) == Footprint(weights + constants, 2 * (17 + 9 + 4) + 4 * 4 + 2 * 4 + membranes)


def test_nothing_is_written_for_too_small_a_budget(tmp_path):
    integer = quantize(random_network("LIF", 17), timesteps=8, input_max=3)
    with pytest.raises(InputError, match="memory_budget is 100"):
        to_c(integer, tmp_path / "c", counts(18), memory_budget=100)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_for_a_recording_that_cannot_be_run(tmp_path):
    integer = quantize(random_network("LIF", 19), timesteps=8)
    with pytest.raises(InputError, match="max_events"):
        to_c(integer, tmp_path / "c", counts(20) + 1)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(tmp_path):
    integer = quantize(random_network("LIF", 21), timesteps=8)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        to_c(integer, tmp_path, counts(22, most=1))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="there is no arm-none-eabi-gcc")
@pytest.mark.parametrize(
    ("neuron", "mode"), [("UltraDLIF", "tropical"), ("UltraLIF", "hard"), ("LIF", "hard")]
)
def test_cortex_m(tmp_path, neuron, mode):
    integer = quantize(random_network(neuron, 23, sizes=(64, 64, 16)), mode=mode, timesteps=8, input_max=3)
    to_c(integer, tmp_path / "c", counts(24, inputs=64))
    make(tmp_path / "c", "gcc", "-O1", "cortex-m")
    if mode == "tropical":
        code = subprocess.run(
            ["arm-none-eabi-objdump", "-d", tmp_path / "c" / "model-arm.o"], capture_output=True, check=True
        ).stdout.decode()
        before_the_checksum = code.split("<model_hash>:")[0]
        assert "<model_tick>:" in before_the_checksum
        assert not re.search(r"\t(mul|mla|mls|smull|umull)", before_the_checksum)
    if not shutil.which("qemu-system-arm"):
        pytest.skip("there is no qemu-system-arm")
    make(tmp_path / "c", "gcc", "-O1", "qemu")
    selftest = tmp_path / "c" / "selftest.c"
    text = selftest.read_text()
    selftest.write_text(re.sub(r"(hash\[SAMPLES\] = \{\s*)\d+", r"\g<1>1", text))
    with pytest.raises(subprocess.CalledProcessError):
        make(tmp_path / "c", "gcc", "-O1", "qemu")


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_a_title_cannot_end_the_comment_it_is_in(tmp_path):
    integer = quantize(random_network("LIF", 25), timesteps=8, input_max=3)
    title = "a */ b **// int x; /*/ c\n\nd\x1b"
    to_c(integer, tmp_path / "c", counts(26), title=title)
    first = (tmp_path / "c" / "model.h").read_text().splitlines()[0]
    assert first == "/* a * / b ** // int x; / * / c d"
    make(tmp_path / "c", "gcc", "-O1", "test")


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize("leak", ["multiply", "shift"])
def test_a_leak_close_to_one_compiles_without_a_warning(tmp_path, leak):
    net = random_network("LIF", 27, leak=0.999999)
    integer = quantize(net, timesteps=8, input_max=3, leak=leak)
    to_c(integer, tmp_path / "c", counts(28))
    make(tmp_path / "c", "gcc", "-O1 -Wconversion", "test")


def test_export_to_c_imports_neither_nir_nor_onnx() -> None:
    script = "import sys, ultralif.export as e; e.to_c; print('h5py' in sys.modules, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    hdf5, *modules = done.stdout.split()
    assert hdf5 == "False"
    assert not {"ultralif.export.nir", "ultralif.export.nir_read", "ultralif.export.onnx"} & set(modules)


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
@pytest.mark.parametrize("levels", [False, True])
def test_an_arduino_library_by_the_rules_of_its_linter(tmp_path, levels):
    """The sketch compiles as C++ beside a serial port of our own, and the layout is what the IDE expects."""
    torch.manual_seed(3)
    net = ul.Network((6, 5, 3), neuron="UltraLIF")
    options = {"input_range": (0, 1)} if levels else {}
    integer = quantize(net, timesteps=3, **options)
    out = tmp_path / "my net"
    to_c(integer, out, torch.ones(3, 2, 6), layout="arduino", title="A net")
    facts = dict(line.split("=", 1) for line in (out / "library.properties").read_text().splitlines())
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,62}", facts["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", facts["version"])
    assert facts["category"] == "Data Processing"
    assert all(
        facts[key] for key in ("author", "maintainer", "sentence", "paragraph", "url", "architectures")
    )
    assert not facts["paragraph"].startswith(facts["sentence"])
    assert (out / "src" / facts["includes"]).exists()
    assert {part.name for part in out.iterdir()} == {"src", "examples", "README.md", "library.properties"}
    sketch = (out / "examples/Classify/Classify.ino").read_text()
    (tmp_path / "sketch.cpp").write_text(
        "#include <cstddef>\n#include <cstdio>\nstruct Port { void begin(long) {}\n"
        "std::size_t readBytes(char *to, std::size_t n) { for (std::size_t i = 0; i < n; i++) to[i] = 1; "
        "return n; }\nvoid println(const char *s) { std::puts(s); }\n"
        'void println(int n) { std::printf("%d\\n", n); } } Serial;\n'
        f"{sketch}\nint main() {{ setup(); loop(); }}\n"
    )
    sources = [out / "src/model.c", out / "src/selftest.c"]
    for source in sources:
        subprocess.run(["gcc", "-c", "-std=c99", "-o", source.with_suffix(".o"), source], check=True)
    objects = [source.with_suffix(".o") for source in sources]
    subprocess.run(
        [
            "g++",
            "-Wall",
            "-Werror",
            "-I",
            out / "src",
            "-o",
            tmp_path / "sketch",
            tmp_path / "sketch.cpp",
            *objects,
        ],
        check=True,
    )
    done = subprocess.run([tmp_path / "sketch"], capture_output=True, text=True, check=True)
    x = torch.full((3, 1, 6), integer.levels.step) if integer.levels else torch.ones(3, 1, 6)
    assert done.stdout.split("\n")[:2] == ["self-test passed", str(int(integer.run(x).scores.argmax()))]


@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("gcc"), reason="there is no cmake")
def test_cmake_builds_and_tests_the_model(tmp_path):
    torch.manual_seed(3)
    integer = quantize(ul.Network((6, 5, 3), neuron="UltraLIF"), timesteps=3)
    to_c(integer, tmp_path / "c", torch.ones(3, 2, 6))
    for command in (["cmake", "-S", "c", "-B", "b"], ["cmake", "--build", "b"], ["ctest", "--test-dir", "b"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def changed(names: dict[str, Array], library: ctypes.CDLL, g: torch.Generator) -> int:
    """Flip one random bit of one random constant, ask the self-test, and restore it."""
    name = list(names)[int(torch.randint(len(names), (), generator=g))]
    size = names[name].bytes
    array = (ctypes.c_uint8 * size).in_dll(library, name)
    place, bit = int(torch.randint(size, (), generator=g)), 1 << int(torch.randint(8, (), generator=g))
    array[place] ^= bit
    found = int(library.model_selftest(ctypes.byref(State())))
    array[place] ^= bit
    return found


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
@pytest.mark.parametrize("kind", ["dense", "vgg", "pooled spikes"])
def test_the_self_test_finds_every_changed_constant(tmp_path, kind):
    """1,000 single bits, each flipped in the memory of a program whose constants can be written to."""
    folder = tmp_path / "c"
    if kind == "dense":
        integer = quantize(random_network("UltraLIF", 3), timesteps=8, input_max=3)
        to_c(integer, folder, counts(4)[:, :1])
    else:
        integer = quantize(made(kind), timesteps=5, shape=SHAPE)
        to_c(integer, folder, events(4)[:, :1])
    writable = ["-Dconst=", "-Dstatic=", "-O1", "-w", "-shared", "-fPIC", "model.c", "selftest.c"]
    subprocess.run(["gcc", *writable, "-o", "all.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "all.so"))
    assert library.model_selftest(ctypes.byref(State())) == 0
    names = {array.name: array for array in arrays(integer, make_plan(integer))}
    g = torch.Generator().manual_seed(0)
    assert [changed(names, library, g) for _ in range(1000)] == [-1] * 1000
    assert library.model_selftest(ctypes.byref(State())) == 0


@pytest.mark.parametrize("value", [2**62, -1, 2**40])
def test_recorded_inputs_are_checked_before_they_are_used(tmp_path, value):
    integer = quantize(random_network("LIF", 3), timesteps=8)
    with pytest.raises(InputError, match="event"):
        to_c(integer, tmp_path / "c", torch.full((2, 4, 30), value))
    assert not (tmp_path / "c").exists()
