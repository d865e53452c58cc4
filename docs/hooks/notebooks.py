"""Show notebooks as pages: cells and their stored outputs, as Markdown."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page beside every notebook; the notebook itself stays, to be downloaded."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            notebook = json.loads(file.content_string)
            page = "\n\n".join([*_blocks(notebook["cells"]), _footer(file.src_uri)])
            uri = file.src_uri.removesuffix(".ipynb") + ".md"
            files.append(File.generated(config, uri, content=page))
    return files


def _blocks(cells: list[dict[str, Any]]) -> Iterator[str]:
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            yield from _output(output)


def _output(output: dict[str, Any]) -> Iterator[str]:
    if output["output_type"] == "stream":
        yield f"```{{.text .output}}\n{''.join(output['text']).rstrip()}\n```"
        return
    data = output["data"]
    if "image/png" in data:
        yield f'<img alt="What the cell above draws." src="data:image/png;base64,{data["image/png"]}">'
    elif "text/plain" in data:
        yield f"```{{.text .output}}\n{''.join(data['text/plain'])}\n```"


def _footer(uri: str) -> str:
    name = Path(uri).name
    return f"---\n\nThis page is a notebook: [{name}]({name}){{ download }}. It downloads no data."
