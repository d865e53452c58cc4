"""Speedrun: a quick way to a binary spiking network on CIFAR-10, on one GPU.

    python examples/speedrun.py --data FOLDER --seeds 5 --timesteps 4
    python examples/speedrun.py --data FOLDER --holdout 5000 --try '{"lr": 0.1}' '{"neuron": "SoftLIF"}'
    python examples/speedrun.py --data FOLDER --subset 512 --width 0.0625 --epochs 2 --batch 64    # on a CPU

FOLDER has the six files of cifar-10-batches-bin, plain or as .xz. The recipe:
1. The images live on the GPU. An epoch is cropped, mirrored (every image alternates) and cut out in one go.
2. The first map is linear, computed once and repeated over time: a frozen 2x2 convolution that whitens, a 3x3
   convolution, batch norm. Everything after it sees spikes.
3. A group of layers halves the picture before its first neurons. Inside of it currents are added, before the
   neuron: spikes stay 0 or 1, and the gradient has a way around the neurons.
4. Filters are trained by Muon, whose step is an orthogonal matrix: no layer starves behind its neurons.
5. For a share of the epochs the neurons are soft and gradients exact; then spikes are binary and the soft
   derivative remains. In the end the statistics of batch norm are taken anew, with binary spikes.
The accuracy is that of the last epoch, without test-time augmentation. `seconds` runs from the first look at
the training images to the last statistics of batch norm; `warmup_seconds`, for compiling, is needed once.
"""

import argparse
import json
import lzma
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ultralif as ul

RECIPE = {
    "timesteps": 1,
    "epochs": 60,
    "batch": 1000,
    "neuron": "UltraLIF",  # any neuron of ultralif, relu, or spikingjelly
    "options": "{}",  # its arguments, as JSON
    "eps": 0.3,  # the temperature at the start, for neurons that have one
    "soft": 0.7,  # share of the epochs with soft spikes; then they are binary
    "widths": "64,128,384,512",  # channels of the first layer, then of the groups
    "width": 1.0,  # multiplies them all
    "depth": 3,  # convolutions of a group
    "residual": 1,  # 1: inside of a group, add the current of the layer before
    "optimizer": "muon",  # or sgd, for the filters; all else takes SGD
    "lr": 0.2,  # of the filters
    "norm_lr": 0.05,
    "eps_lr": 0.05,  # of the neurons' constants
    "head_lr": 0.5,
    "warmup": 0.1,  # share of the steps in which the rates rise, before they fall to 0
    "smoothing": 0.2,  # of the labels
    "flip": 1,  # 1: mirror images
    "shift": 4,  # pixels by which an image is moved at most
    "cutout": 12,  # side of the blank square
    "compile": "default",  # mode of torch.compile, or none
}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
HALF = torch.bfloat16 if ON_GPU else torch.float32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
MOMENTUM = 0.4  # of the statistics of batch norm
if ON_GPU:
    torch.backends.cudnn.benchmark = True
    torch._dynamo.config.recompile_limit = 100  # a graph for each mode of each net


def load(folder: Path, half: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return normalised images ``[N, 3, 32, 32]`` and labels, on the device."""
    raw = b""
    for name in [f"data_batch_{i}" for i in range(1, 6)] if half == "train" else ["test_batch"]:
        plain, packed = folder / f"{name}.bin", folder / f"{name}.bin.xz"
        raw += plain.read_bytes() if plain.exists() else lzma.decompress(packed.read_bytes())
    rows = torch.from_numpy(np.frombuffer(raw, np.uint8).reshape(-1, 3073)[:count].copy()).to(DEVICE)
    images = rows[:, 1:].view(-1, 3, 32, 32).float().div_(255)
    images = (images - images.new_tensor(MEAN).view(3, 1, 1)) / images.new_tensor(STD).view(3, 1, 1)
    return images.to(HALF, memory_format=torch.channels_last), rows[:, 0].long()


def augmented(padded: Tensor, mirrored: Tensor, shift: int, cutout: int, random: torch.Generator) -> Tensor:
    """Crop a random window of every padded image, mirror the chosen ones, and blank a square."""
    count, size = len(padded), padded.shape[-1] - 2 * shift
    corner = torch.randint(2 * shift + 1, (2, count), generator=random, device=DEVICE)
    windows = padded.permute(0, 2, 3, 1).unfold(1, size, 1).unfold(2, size, 1)  # [N, y, x, C, H, W]
    images = windows[torch.arange(count, device=DEVICE), corner[0], corner[1]]
    images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)
    if cutout:
        start = torch.randint(size - cutout + 1, (2, count, 1), generator=random, device=DEVICE)
        rows, columns = (torch.arange(size, device=DEVICE) - start) // cutout == 0
        images = images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)
    return images.contiguous(memory_format=torch.channels_last)


def make_neuron(given: Namespace) -> nn.Module:
    if given.neuron == "relu":
        return nn.ReLU()
    if given.neuron == "spikingjelly":  # its LIF, with its own defaults
        from spikingjelly.activation_based import neuron, surrogate

        node = neuron.LIFNode(detach_reset=True, surrogate_function=surrogate.ATan(), step_mode="m")
        node.register_forward_pre_hook(lambda node, currents: node.reset() or currents[0].float())
        return node
    options = {"eps": given.eps} if given.neuron.startswith(("Ultra", "Soft")) else {}
    backend = "auto" if given.compile == "none" else "reference"  # a compiler fuses the definition itself
    return ul.nn.NEURONS[given.neuron](backend=backend, **options | json.loads(given.options))


class Layer(nn.Module):
    """Convolution, perhaps pooling, batch norm over time and batch; then neurons."""

    def __init__(self, inputs: int, outputs: int, given: Namespace, pool: int = 1, times: int = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs, momentum=MOMENTUM)
        self.neuron = make_neuron(given)
        self.pool, self.timesteps, self.times = pool, given.timesteps, times

    def current(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.norm(F.max_pool2d(x, self.pool) if self.pool > 1 else x)

    def fire(self, current: Tensor) -> Tensor:
        """Return spikes ``[T*B, C, H, W]``; channels-last memory is read as it is, channels innermost."""
        seen = current.permute(0, 2, 3, 1)
        seen = seen.expand(self.times, *seen.shape) if self.times else seen.unflatten(0, (self.timesteps, -1))
        return self.neuron(seen).flatten(0, 1).permute(0, 3, 1, 2)


class Net(nn.Module):
    """Images ``[B, 3, 32, 32]`` to scores ``[B, 10]``."""

    def __init__(self, given: Namespace) -> None:
        super().__init__()
        self.timesteps, self.residual = given.timesteps, given.residual
        first, *widths = (max(1, round(int(n) * given.width)) for n in given.widths.split(","))
        self.whiten = nn.Conv2d(3, 12, 2, bias=False).requires_grad_(False)
        self.first = Layer(12, first, given, times=given.timesteps)  # an image is a constant current
        self.groups = nn.ModuleList()
        for inputs, width in zip([first, *widths], widths, strict=False):
            others = (Layer(width, width, given) for _ in range(given.depth - 1))
            self.groups.append(nn.ModuleList([Layer(inputs, width, given, pool=2), *others]))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.first.fire(self.first.current(self.whiten(x)))
        for first, *others in self.groups:
            current = first.current(spikes)
            spikes = first.fire(current)
            for layer in others:
                current = layer.current(spikes) + (current if self.residual else 0)
                spikes = layer.fire(current)
        return self.head(spikes.unflatten(0, (self.timesteps, -1)).mean((0, 3, 4)))

    @torch.no_grad()
    def look(self, images: Tensor) -> None:
        """Whiten: the first filters are the principal directions of 2x2 patches, at equal variance."""
        patches = F.unfold(images.float(), 2).transpose(1, 2).flatten(0, 1)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        self.whiten.weight.copy_((vectors / (values + 5e-4).sqrt()).T.view(12, 3, 2, 2))


class Muon(torch.optim.Optimizer):
    """Momentum whose step is orthogonal; batch norm makes the length of filters idle, so it is kept."""

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for filters in group["params"]:
                past = self.state[filters].setdefault("past", torch.zeros_like(filters))
                past.mul_(group["momentum"]).add_(filters.grad)
                step = self.orthogonal((filters.grad + group["momentum"] * past).flatten(1))
                filters.mul_(len(filters) ** 0.5 / filters.norm())
                filters.add_(step.reshape(filters.shape), alpha=-group["lr"])

    @staticmethod
    def orthogonal(matrix: Tensor) -> Tensor:
        """Bring all singular values near 1: five steps of a quintic Newton-Schulz iteration."""
        x = matrix.to(HALF) / (matrix.norm() + 1e-7)
        x = x.T if x.shape[0] > x.shape[1] else x
        for _ in range(5):
            square = x @ x.T
            x = torch.addmm(x, torch.addmm(square, square, square, beta=-4.775, alpha=2.0315), x, beta=3.4445)
        return x.T if matrix.shape[0] > matrix.shape[1] else x


def optimizers(net: nn.Module, given: Namespace) -> list[torch.optim.Optimizer]:
    """Return Muon or SGD for the filters and SGD for the rest; constants and norms have no weight decay."""
    norms = [p for m in net.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    head = list(net.head.parameters())
    filters = [p for p in net.parameters() if p.dim() == 4 and p.requires_grad]
    known = {id(p) for p in [*norms, *head, *filters]}
    constants = [p for p in net.parameters() if p.requires_grad and id(p) not in known]
    groups = [{"params": norms, "lr": given.norm_lr}, {"params": constants, "lr": given.eps_lr}]
    groups.append({"params": head, "lr": given.head_lr, "weight_decay": 1e-3})
    if given.optimizer == "sgd":
        groups.append({"params": filters, "lr": given.lr, "weight_decay": 5e-4})
    found = [torch.optim.SGD([g for g in groups if g["params"]], momentum=0.85, nesterov=True)]
    return found if given.optimizer == "sgd" else [*found, Muon(filters, {"lr": given.lr, "momentum": 0.6})]


@torch.no_grad()
def scores(net: nn.Module, images: Tensor, batch: int) -> Tensor:
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU):
        return torch.cat([net(x) for x in images.split(batch)])


def settle(net: nn.Module, images: Tensor, batch: int) -> None:
    """Take the statistics of batch norm anew, as plain means, with the spikes as they are now."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean
    scores(net, images, batch)
    for norm in norms:
        norm.momentum = MOMENTUM


def fit(net: nn.Module, model: nn.Module, images: Tensor, labels: Tensor, given: Namespace, seed: int):
    """Train the net from here; ``model`` is the net itself or its compiled form."""
    random = torch.Generator(DEVICE).manual_seed(seed)
    padded = F.pad(images, [given.shift] * 4, "reflect")
    mirrored = torch.rand(len(images), generator=random, device=DEVICE) < 0.5
    opts = optimizers(net, given)
    peaks = [(group, group["lr"]) for opt in opts for group in opt.param_groups]
    per_epoch = len(images) // given.batch
    step, steps = 0, given.epochs * per_epoch
    rising = given.warmup * steps
    for epoch in range(given.epochs):
        if given.neuron not in ("relu", "spikingjelly"):
            ul.nn.set_mode(net, "soft" if epoch < int(given.soft * given.epochs) else "hard")
        flipped = (mirrored ^ bool(epoch % 2)) & bool(given.flip)
        seen = augmented(padded, flipped, given.shift, given.cutout, random)
        order = torch.randperm(len(images), generator=random, device=DEVICE)
        for chosen in order.split(given.batch)[:per_epoch]:
            step += 1
            for group, peak in peaks:
                group["lr"] = peak * min(step / max(rising, 1), (steps - step) / (steps - rising))
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU):
                said = model(seen[chosen]).float()
            F.cross_entropy(said, labels[chosen], label_smoothing=given.smoothing).backward()
            for opt in opts:
                opt.step()
                opt.zero_grad()
    settle(net, seen[: 20 * given.batch], given.batch)


def run(given: Namespace, seed: int, train: tuple, test: tuple, build: type[nn.Module] = Net) -> dict:
    """Build, compile, train and judge one net; equal nets find what was compiled before."""
    torch.manual_seed(seed)
    begun = time.perf_counter()
    net = build(given).to(DEVICE, memory_format=torch.channels_last)
    model = net
    if ON_GPU:
        if given.compile != "none" and given.neuron != "spikingjelly":
            model = torch.compile(net, mode=given.compile, dynamic=False)
        fresh = {name: value.clone() for name, value in net.state_dict().items()}
        short = Namespace(**vars(given) | {"epochs": 2, "soft": 0.5 if given.soft else 0})
        fit(net, model, *(part[: 3 * given.batch] for part in train), short, seed)
        net.load_state_dict(fresh)
        torch.cuda.synchronize()
    started = time.perf_counter()
    if build is Net:
        net.look(train[0][:5000])
    fit(net, model, *train, given, seed)
    if ON_GPU:
        torch.cuda.synchronize()
    told = {"seed": seed, "seconds": time.perf_counter() - started, "warmup_seconds": started - begun}
    right = scores(net.eval(), test[0], 1000).argmax(1) == test[1]
    neurons = [module for module in net.modules() if isinstance(module, ul.nn.Neuron)]
    told["mode"] = neurons[0].mode if neurons else given.neuron
    told["device"] = torch.cuda.get_device_name() if ON_GPU else "CPU"
    told["eps"] = [torch.as_tensor(n.eps).mean().item() for n in neurons if "eps" in n.declared()]
    return told | {"accuracy": 100 * right.float().mean().item()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of cifar-10-batches-bin")
    add("--seeds", type=int, default=1, help="how many: 0, 1, 2, ...")
    add("--holdout", type=int, default=0, help="judge by the last N training images instead")
    add("--subset", type=int, help="use only the first N images")
    add("--try", dest="variants", nargs="+", default=["{}"], help="recipes to compare, as JSON")
    add("--spikingjelly", type=Path, help="a folder with that package")
    add("--out", type=Path, help="append a JSON line for each run")
    for name, value in RECIPE.items():
        add(f"--{name.replace('_', '-')}", type=type(value), default=value, metavar=str(value))
    given = parser.parse_args()
    if given.spikingjelly:
        sys.path.insert(0, str(given.spikingjelly))
    train, test = load(given.data, "train", given.subset), load(given.data, "test", given.subset)
    if given.holdout:
        test = train[0][-given.holdout :], train[1][-given.holdout :]
        train = train[0][: -given.holdout], train[1][: -given.holdout]
    for seed in range(given.seeds):
        for variant in map(json.loads, given.variants):
            recipe = {name: variant.get(name, getattr(given, name)) for name in RECIPE}
            row = run(Namespace(**recipe), seed, train, test) | {"holdout": given.holdout, "recipe": recipe}
            line = json.dumps({"variant": variant, **row, "torch": torch.__version__})
            print(line, flush=True)
            if given.out:
                with given.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
