"""Draw run.svg: the way of one training run through the modules. Run it from anywhere."""

from html import escape
from pathlib import Path

STAGES = (
    ("cli/train.py", "flags, a preset or a file", "RunConfig"),
    ("training/config.py", "types and limits checked; identity.py gives the run its name", "RunConfig"),
    ("training/loop.py", "unless it is finished, train it; a stack too large is halved", "RunConfig"),
    ("training/networks.py", "untrained networks from nn/ or models/", "networks"),
    ("training/batches.py", "data/ finds, checks, batches and encodes the samples", "networks and data"),
    ("training/loop.py", "one nn.Stack or Single; continues from the newest checkpoint", "Job"),
    ("training/loop.py", "every step, by step.py: forward, loss, backward, optimizer", "Job"),
    ("training/evaluate.py", "test set in soft, hard and tropical mode; meter.py counts", "Evaluation"),
    ("training/evaluate.py", "numbers, learned constants, code, device, data", "Result"),
    ("training/store.py", "a folder for the run, written at once; a row in the index", "Result"),
    ("report/gather.py", "tables, figures, the page for the browser", ""),
)
"""Each module with its task and the value that it hands on."""
LOOP = "training/loop.py"
INSIDE = "nn/ neuron → ops/ kernel (C, Triton), or the definition in functional/"
WIDTH, HEIGHT, GAP, LEFT = 720, 44, 26, 20


def draw() -> str:
    """Return the picture as SVG."""
    parts, y = [], 12
    for number, (module, task, handed) in enumerate(STAGES):
        tall = HEIGHT + (34 if module == LOOP else 0)
        colour = "#fdf1dc" if module == LOOP else "#e9f2fa"
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH - 2 * LEFT}" height="{tall}" rx="6" fill="{colour}" '
            'stroke="#0072B2"/>'
        )
        parts.append(_text(LEFT + 14, y + 27, module, "font-weight:bold;font-family:monospace"))
        parts.append(_text(LEFT + 200, y + 27, task))
        if module == LOOP:
            parts.append(_text(LEFT + 200, y + 58, INSIDE, "fill:#8a5a00"))
        y += tall
        if number < len(STAGES) - 1:
            middle = LEFT + 90
            parts.append(
                f'<path d="M{middle} {y} v{GAP - 7} m-4 0 h8 l-4 7 z" fill="#0072B2" stroke="#0072B2"/>'
            )
            parts.append(_text(middle + 14, y + 18, handed, "font-size:12px;font-family:monospace;fill:#555"))
        y += GAP
    height = y - GAP + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}" style="{style}">{escape(text)}</text>'


if __name__ == "__main__":
    (Path(__file__).parent / "run.svg").write_text(draw())
