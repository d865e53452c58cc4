"""Run the tutorials and store their outputs: ``python docs/tutorials/run.py [NOTEBOOK ...]``.

A notebook runs as in Jupyter, in its own folder, but in this process and without a kernel.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from ultralif.cli import main as ultralif

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1]))  # a tutorial imports research, which is not installed
COMMAND = re.compile(r"^!ultralif (.*)$", re.MULTILINE)


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell in a namespace; return its outputs in notebook format."""
    if source.startswith("%%writefile "):
        first, _, rest = source.partition("\n")
        Path(first.removeprefix("%%writefile ").strip()).write_text(rest)
        return []
    names["_ultralif"] = lambda line: ultralif(shlex.split(line))
    tree = ast.parse(COMMAND.sub(lambda found: f"_ = _ultralif(f{found[1]!r})", source))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = "\n".join(line.rstrip() for line in printed.getvalue().splitlines()) + "\n"
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    outputs += [_display({"image/png": image}) for image in _figures()]
    if value is not None:
        outputs.append(_display({"text/plain": repr(value).splitlines(keepends=True)}))
    return outputs


def run(notebook: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run a notebook's cells in a folder, store the outputs in it, and return its namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    sys.path.insert(0, folder)
    try:
        with contextlib.chdir(folder):
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    cell["outputs"] = run_cell("".join(cell["source"]), names)
    finally:
        sys.path.remove(folder)
    return names


def _display(data: dict[str, Any]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _figures() -> list[str]:
    """Return the open figures as base64-encoded PNGs, and close them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    images = []
    for number in pyplot.get_fignums() if pyplot else ():
        image = io.BytesIO()
        pyplot.figure(number).savefig(image, dpi=72, bbox_inches="tight", metadata={"Software": None})
        pyplot.close(number)
        images.append(base64.b64encode(image.getvalue()).decode())
    return images


def main() -> None:
    """Run the named notebooks, or all of them."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    for path in map(Path, sys.argv[1:] or sorted(HERE.glob("*.ipynb"))):
        notebook = json.loads(path.read_text())
        with tempfile.TemporaryDirectory() as folder:
            run(notebook, folder)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        print(path.name)


if __name__ == "__main__":
    main()
