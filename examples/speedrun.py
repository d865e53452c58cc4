"""Speedrun: a quick way to a binary spiking network on CIFAR-10, on one GPU.

    python examples/speedrun.py --data FOLDER --seeds 3 # 93 % in 55 s on an H200
    python examples/speedrun.py --data FOLDER --epochs 13 --widths 64,128,384,512 --cutout 0 # 90 % in 9 s
    python examples/speedrun.py --data FOLDER --timesteps 4 --epochs 63 # 94 % in 222 s
    python examples/speedrun.py --data FOLDER --holdout 5000 --try '{"lr": 0.2}' '{"neuron": "SoftLIF"}'
    python examples/speedrun.py --data FOLDER --subset 512 --widths 4,8,24,32 --epochs 2 --batch 64 # on a CPU

FOLDER contains the six files of cifar-10-batches-bin, plain or as .xz. The recipe:
1. The images live on the GPU. An epoch is cropped and mirrored (alternating for each image) in one go.
2. The first feature map is repeated over time: a frozen 2x2 whitening, a 3x3 convolution, batch norm.
3. Each group halves the image size, then adds currents: spikes stay binary, and gradients bypass neurons.
4. Filters are trained by Muon, whose steps are orthogonal matrices, so weak gradients starve no layer.
5. The neurons are soft and gradients exact at first. Then spikes are binary, with the soft spike's derivative
   as surrogate. At the end, the batch norm statistics are recomputed with binary spikes.
6. A step is recorded as a CUDA graph. Accuracy is from the last epoch; `seconds` excludes compilation.
"""

import gc
import json
import lzma
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ultralif as ul

RECIPE = {
    "timesteps": 1,
    "epochs": 52,
    "batch": 1000,
    "neuron": "UltraLIF",  # any neuron of ultralif, relu, or spikingjelly
    "options": "{}",  # its arguments, as JSON
    "eps": 0.6,  # the initial temperature, for neurons with one
    "soft": 0.7,  # share of the epochs with soft spikes; the rest use binary ones
    "widths": "64,256,512,512",  # channels of the first layer, then of the groups
    "depth": 3,  # convolutions per group
    "optimizer": "muon",  # or sgd, for the filters; everything else uses SGD
    "lr": 0.1,  # for the filters
    "norm_lr": 0.05,
    "eps_lr": 0.05,  # for the neurons' constants
    "head_lr": 0.5,
    "warmup": 0.1,  # share of the steps used for warm-up, before the learning rates fall to 0
    "smoothing": 0.2,  # label smoothing
    "flip": 1,  # 1: mirror images
    "shift": 4,  # maximum shift of an image, in pixels
    "cutout": 8,  # side of the blank square
    "average": 0.0,  # decay of the weight average used for evaluation; 0: no averaging
    "graph": 1,  # 1: record steps on a GPU; 0: launch every kernel separately
}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
HALF = torch.bfloat16 if ON_GPU else torch.float32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
if ON_GPU:
    torch.backends.cudnn.benchmark = True
    torch.cuda.set_stream(torch.cuda.Stream())  # a step on the default stream could not be recorded


def load(folder: Path, half: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return normalized images ``[N, 3, 32, 32]`` and labels, on the device."""
    raw = b""
    for name in [f"data_batch_{i}" for i in range(1, 6)] if half == "train" else ["test_batch"]:
        plain, packed = folder / f"{name}.bin", folder / f"{name}.bin.xz"
        if not (plain.exists() or packed.exists()):
            raise SystemExit(f"{plain} not found: --data must be the folder cifar-10-batches-bin")
        raw += plain.read_bytes() if plain.exists() else lzma.decompress(packed.read_bytes())
    rows = torch.from_numpy(np.frombuffer(raw, np.uint8).reshape(-1, 3073)[:count].copy()).to(DEVICE)
    images = rows[:, 1:].view(-1, 3, 32, 32).float().div_(255)
    images = (images - images.new_tensor(MEAN).view(3, 1, 1)) / images.new_tensor(STD).view(3, 1, 1)
    return images.to(HALF, memory_format=torch.channels_last), rows[:, 0].long()


def augmented(padded: Tensor, mirrored: Tensor, shift: int, cutout: int, drawn: dict) -> Tensor:
    """Crop a random window of every padded image, mirror the chosen ones, and blank a square."""
    count, size = len(padded), padded.shape[-1] - 2 * shift
    corner = torch.randint(2 * shift + 1, (2, count), **drawn)
    windows = padded.permute(0, 2, 3, 1).unfold(1, size, 1).unfold(2, size, 1)  # [N, y, x, C, H, W]
    images = windows[torch.arange(count, device=DEVICE), corner[0], corner[1]]
    images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)
    if cutout:
        start = torch.randint(size - cutout + 1, (2, count, 1), **drawn)
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
    return ul.nn.NEURONS[given.neuron](**options | json.loads(given.options))


class Layer(nn.Module):
    """Convolution, optional pooling, batch norm over time and batch, then neurons."""

    def __init__(self, inputs: int, width: int, given: Namespace, pool: bool = False, times: int = 0) -> None:
        super().__init__()
        conv, norm = nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.current = nn.Sequential(conv, *[nn.MaxPool2d(2)] * pool, norm)
        self.neuron, self.timesteps, self.times = make_neuron(given), given.timesteps, times

    def fire(self, current: Tensor) -> Tensor:
        """Return spikes ``[T*B, C, H, W]``; channels-last memory is read without a copy."""
        seen = current.permute(0, 2, 3, 1)
        seen = seen.expand(self.times, *seen.shape) if self.times else seen.unflatten(0, (self.timesteps, -1))
        return self.neuron(seen).flatten(0, 1).permute(0, 3, 1, 2)


class Net(nn.Module):
    """Maps images ``[B, 3, 32, 32]`` to scores ``[B, 10]``."""

    def __init__(self, given: Namespace) -> None:
        super().__init__()
        self.timesteps = given.timesteps
        first, *widths = map(int, given.widths.split(","))
        self.whiten = nn.Conv2d(3, 16, 2, bias=False).requires_grad_(False)  # 12, padded to 16 for the GPU
        self.first = Layer(16, first, given, times=given.timesteps)  # an image is a constant current
        self.groups = nn.ModuleList()
        for inputs, width in zip([first, *widths], widths, strict=False):
            others = (Layer(width, width, given) for _ in range(given.depth - 1))
            self.groups.append(nn.ModuleList([Layer(inputs, width, given, pool=True), *others]))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.first.fire(self.first.current(self.whiten(x)))
        for first, *others in self.groups:
            current = first.current(spikes)
            spikes = first.fire(current)
            for layer in others:
                current = current + layer.current(spikes)
                spikes = layer.fire(current)
        return self.head(spikes.unflatten(0, (self.timesteps, -1)).mean((0, 3, 4)))

    @torch.no_grad()
    def look(self, images: Tensor) -> None:
        """Set the first filters to the principal directions of 2x2 patches, scaled to equal variance."""
        patches = F.unfold(images.float(), 2).transpose(1, 2).flatten(0, 1)
        values, vectors = torch.linalg.eigh((patches.T @ patches / len(patches)).cpu())
        self.whiten.weight.zero_()[:12] = (vectors / (values + 5e-4).sqrt()).T.view(12, 3, 2, 2)


def orthogonal(matrices: Tensor) -> Tensor:
    """Bring all singular values near 1: five steps of a quintic Newton-Schulz iteration."""
    x = matrices.to(HALF) / (torch.linalg.matrix_norm(matrices, keepdim=True) + 1e-7).to(HALF)
    x = x.mT if x.shape[1] > x.shape[2] else x
    for _ in range(5):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=-4.775, alpha=2.0315), x, beta=3.4445)
    return x.mT if matrices.shape[1] > matrices.shape[2] else x


class SGD:
    """Nesterov momentum, or Muon. The rate is a tensor, so a recorded step can follow a schedule."""

    def __init__(self, params: list[Tensor], lr: float, decay: float = 0, muon: bool = False) -> None:
        self.params, self.lr, self.decay, self.muon = params, lr, decay, muon
        self.momentum, self.past = 0.6 if muon else 0.85, [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self, factor: Tensor) -> None:
        grads = [p.grad for p in self.params]
        if self.decay:
            torch._foreach_add_(grads, self.params, alpha=self.decay)
        torch._foreach_mul_(self.past, self.momentum)
        torch._foreach_add_(self.past, grads)
        steps = torch._foreach_add(grads, self.past, alpha=self.momentum)
        if self.muon:
            for shape in {step.shape for step in steps}:  # filters of one shape together: fewer kernels
                same = [step for step in steps if step.shape == shape]
                found = orthogonal(torch.stack([step.flatten(1) for step in same]))
                torch._foreach_copy_(same, [matrix.reshape(shape) for matrix in found])
            for p, length in zip(self.params, torch._foreach_norm(self.params), strict=True):
                p.mul_(len(p) ** 0.5 / length)  # the scale has no effect before batch norm, so keep it fixed
        torch._foreach_mul_(steps, factor * self.lr)
        torch._foreach_sub_(self.params, steps)


def optimizers(net: nn.Module, given: Namespace) -> list[SGD]:
    """Return Muon or SGD for the filters and SGD for the rest; constants and norms have no weight decay."""
    norms = [p for m in net.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    head, muon = list(net.head.parameters()), given.optimizer == "muon"
    filters = [p for p in net.parameters() if p.dim() == 4 and p.requires_grad]
    known = {id(p) for p in [*norms, *head, *filters]}
    constants = [p for p in net.parameters() if p.requires_grad and id(p) not in known]
    found = [SGD(norms, given.norm_lr), SGD(constants, given.eps_lr), SGD(head, given.head_lr, decay=1e-3)]
    return [o for o in [*found, SGD(filters, given.lr, 0 if muon else 5e-4, muon)] if o.params]


@torch.no_grad()
def scores(net: nn.Module, images: Tensor, batch: int) -> Tensor:
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU):
        return torch.cat([net(x) for x in images.split(batch)])


def settle(net: nn.Module, images: Tensor, batch: int) -> None:
    """Recompute the batch norm statistics as plain means, with the current spikes."""
    for norm in [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean
    scores(net, images, batch)


class Training:
    """The training steps of a net. All data that they read and write stay at fixed places on the device."""

    def __init__(self, net: nn.Module, images: Tensor, given: Namespace) -> None:
        self.net, self.given, self.opts = net, given, optimizers(net, given)
        self.seen, self.labels = torch.randn_like(images), torch.arange(len(images), device=DEVICE) % 10
        self.order = self.labels[: len(images) // given.batch * given.batch].view(-1, given.batch).clone()
        self.count = torch.zeros(1, dtype=torch.long, device=DEVICE)
        steps = given.epochs * len(self.order)
        n = torch.arange(1, steps + 1, device=DEVICE) / steps
        self.factors = torch.minimum(n / given.warmup, (1 - n) / (1 - given.warmup))
        self.params = [p.detach() for p in net.parameters() if p.requires_grad]
        self.means = [p.clone() for p in self.params]
        self.graphs: dict[str, torch.cuda.CUDAGraph] = {}
        if ON_GPU:
            self.compile()

    def step(self) -> None:
        self.net.zero_grad()
        chosen = self.order.index_select(0, self.count % len(self.order))[0]
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU, cache_enabled=False):
            said = self.net(self.seen[chosen]).float()
        F.cross_entropy(said, self.labels[chosen], label_smoothing=self.given.smoothing).backward()
        factor = self.factors.index_select(0, self.count)[0]
        for opt in self.opts:
            opt.step(factor)
        torch._foreach_lerp_(self.means, self.params, 1 - self.given.average)
        self.count.add_(1)

    def set_mode(self, epoch: int) -> str:
        mode = "soft" if epoch < int(self.given.soft * self.given.epochs) else "hard"
        if self.given.neuron not in ("relu", "spikingjelly"):
            ul.nn.set_mode(self.net, mode)
        return mode

    def compile(self) -> None:
        """Compile every kernel and record the steps on noise, then undo the changes to the net."""
        changed = [*self.net.state_dict().values(), *self.means, self.count]
        changed += [past for opt in self.opts for past in opt.past]
        before = [tensor.clone() for tensor in changed]
        for epoch in (0, self.given.epochs - 1):
            mode = self.set_mode(epoch)
            self.step()
            self.step()
            if self.given.graph and mode not in self.graphs:
                self.graphs[mode] = torch.cuda.CUDAGraph()
                gc.collect()  # freeing an older graph would break the one being recorded
                with torch.cuda.graph(self.graphs[mode]):
                    self.step()
        scores(self.net, self.seen[: self.given.batch], self.given.batch)
        torch._foreach_copy_(changed, before)
        torch.cuda.synchronize()

    def fit(self, images: Tensor, labels: Tensor, seed: int) -> None:
        """Train the net."""
        given = self.given
        drawn = {"generator": torch.Generator(DEVICE).manual_seed(seed), "device": DEVICE}
        padded = F.pad(images, [given.shift] * 4, "reflect")
        mirrored = torch.rand(len(images), **drawn) < 0.5
        self.labels.copy_(labels)
        for epoch in range(given.epochs):
            graph = self.graphs.get(self.set_mode(epoch))
            flipped = (mirrored ^ bool(epoch % 2)) & bool(given.flip)
            self.seen.copy_(augmented(padded, flipped, given.shift, given.cutout, drawn))
            self.order.copy_(torch.randperm(len(images), **drawn)[: self.order.numel()].view_as(self.order))
            for _ in range(len(self.order)):
                graph.replay() if graph else self.step()
        torch._foreach_copy_(self.params, self.means)
        settle(self.net, images[: 20 * given.batch], given.batch)


def run(given: Namespace, seed: int, train: tuple, test: tuple, build: type[nn.Module] = Net) -> tuple:
    """Build, train and evaluate one net; return the measurements and the net."""
    torch.manual_seed(seed)
    begun = time.perf_counter()
    net = build(given).to(DEVICE, memory_format=torch.channels_last)
    training = Training(net, train[0], given)
    started = time.perf_counter()
    if build is Net:
        net.look(train[0][:5000])
    training.fit(*train, seed)
    torch.cuda.synchronize() if ON_GPU else None
    told = {"seed": seed, "seconds": time.perf_counter() - started, "warmup_seconds": started - begun}
    right = scores(net.eval(), test[0], 1000).argmax(1) == test[1]
    neurons = [module for module in net.modules() if isinstance(module, ul.nn.Neuron)]
    told["mode"] = neurons[0].mode if neurons else given.neuron
    told["device"] = torch.cuda.get_device_name() if ON_GPU else "CPU"
    told["eps"] = [torch.as_tensor(n.eps).mean().item() for n in neurons if "eps" in n.declared()]
    return told | {"accuracy": 100 * right.float().mean().item()}, net


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of cifar-10-batches-bin")
    add("--seeds", type=int, default=1, help="how many: 0, 1, 2, ...")
    add("--holdout", type=int, default=0, help="evaluate on the last N training images instead")
    add("--subset", type=int, help="use only the first N images")
    add("--try", dest="variants", nargs="+", default=["{}"], help="recipes to compare, as JSON")
    for name, value in RECIPE.items():
        add(f"--{name.replace('_', '-')}", type=type(value), default=value, metavar=str(value))
    given = parser.parse_args()
    train, test = load(given.data, "train", given.subset), load(given.data, "test", given.subset)
    if given.holdout:
        train, test = zip(*((part[: -given.holdout], part[-given.holdout :]) for part in train), strict=True)
    for seed in range(given.seeds):
        for variant in map(json.loads, given.variants):
            recipe = {name: variant.get(name, getattr(given, name)) for name in RECIPE}
            row, _ = run(Namespace(**recipe), seed, train, test)
            row |= {"holdout": given.holdout, "recipe": recipe, "torch": torch.__version__}
            print(json.dumps({"variant": variant, **row}), flush=True)


if __name__ == "__main__":
    main()
