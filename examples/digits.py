"""Train UltraDLIF and LIF side by side on the digits that scikit-learn carries."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy

import ultralif as ul

TIMESTEPS, EPOCHS, BATCH = 10, 60, 64


def encode(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw spikes [T, B, 64] whose probability is half the pixel, as the paper does."""
    shape = (TIMESTEPS, *images.shape)
    return (torch.rand(shape, generator=generator) < 0.5 * images).float()


def accuracy(net: ul.Network, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        spikes = encode(images, torch.Generator().manual_seed(1))
        return 100 * (net(spikes).argmax(1) == labels).float().mean().item()


def train(neuron: str, images: torch.Tensor, labels: torch.Tensor) -> ul.Network:
    torch.manual_seed(42)
    generator = torch.Generator().manual_seed(42)
    net = ul.Network((64, 64, 10), neuron=neuron)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(images), generator=generator).split(BATCH):
            loss = cross_entropy(net(encode(images[index], generator)), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def main() -> dict[str, float]:
    pixels, classes = load_digits(return_X_y=True)
    split = train_test_split(pixels / 16, classes, test_size=0.25, random_state=0)
    train_x, test_x = (torch.tensor(x, dtype=torch.float32) for x in split[:2])
    train_y, test_y = (torch.tensor(y) for y in split[2:])
    found = {}
    for neuron in ("LIF", "UltraDLIF"):
        net = train(neuron, train_x, train_y)
        found[neuron] = accuracy(net, test_x, test_y)
        line = f"{neuron:10} {found[neuron]:5.1f} % correct"
        if neuron == "UltraDLIF":
            with ul.mode(net, "hard"):
                line += f", {accuracy(net, test_x, test_y):5.1f} % with binary spikes"
        print(line)
    return found


if __name__ == "__main__":
    main()
