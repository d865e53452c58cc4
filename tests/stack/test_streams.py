"""Branches of a recorded graph, rehearsed without a GPU; `training.test_graph` replays them on one."""

from contextlib import contextmanager
from itertools import count

import torch

from ultralif.stack import streams

CPU = torch.device("cpu")


def test_branches_begin_where_they_fork_and_end_before_what_follows(monkeypatch):
    log, numbers = [], count(-1)

    class Stream:
        def __init__(self, device):
            self.name = f"side {next(numbers)}"

        def record_event(self):
            log.append(f"{self.name} marks")
            return f"the mark of {self.name}"

        def wait_event(self, event):
            log.append(f"{self.name} waits for {event}")

        def wait_stream(self, other):
            log.append(f"{self.name} waits for {other.name}")

    @contextmanager
    def on(stream):
        log.append(f"on {stream.name}")
        yield

    monkeypatch.setattr(streams, "_streams", {})
    monkeypatch.setattr(streams, "is_recording", lambda device: True)
    main = Stream(CPU)
    main.name = "main"
    for name, value in {"Stream": Stream, "stream": on, "current_stream": lambda device: main}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for _ in range(2):  # the streams are used again
        with streams.side_by_side(CPU) as branch:
            with branch():
                log.append("one")
            with streams.side_by_side(CPU) as inner, inner():
                log.append("inside")
            with branch():
                log.append("two")
            log.append("own")
    once = [
        "main marks",
        *("side 0 waits for the mark of main", "on side 0", "one"),
        *("main marks", "side 1 waits for the mark of main", "on side 1", "inside", "main waits for side 1"),
        *("side 1 waits for the mark of main", "on side 1", "two"),
        "own",
        *("main waits for side 0", "main waits for side 1"),
    ]
    assert log == once * 2


def test_the_gradients_of_a_product_and_its_bias():
    x, weight, bias = (torch.randn(size, dtype=torch.float64) for size in ((3, 2, 4), (5, 4), (5,)))
    given = (weight.requires_grad_(), bias.requires_grad_())
    torch.testing.assert_close(streams._apply(x, *given), torch.nn.functional.linear(x, *given))
    assert torch.autograd.gradcheck(lambda *given: streams._apply(x, *given), given)
