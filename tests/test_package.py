"""The package as a whole: what it exports, how fast it loads, what it documents."""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import tomllib
import types
from importlib import resources
from pathlib import Path

import pytest

import ultralif as ul
from ultralif.names import NEURON_NAMES

ROOT = Path(__file__).parent.parent
CORE = ["ultralif.errors", "ultralif.maxplus", "ultralif.functional", "ultralif.nn", "ultralif.cli"]


def modules_of(package: str) -> list[types.ModuleType]:
    """Import a module and, if it is a package, all that is in it."""
    module = importlib.import_module(package)
    inside = pkgutil.walk_packages(getattr(module, "__path__", []), f"{package}.")
    return [module, *(importlib.import_module(info.name) for info in inside)]


MODULES = {module.__name__: module for package in CORE for module in modules_of(package)}


def documented(thing: object) -> bool:
    return bool((inspect.getdoc(thing) or "").strip())


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_every_public_name_has_a_docstring(module: types.ModuleType) -> None:
    assert documented(module)
    for name in getattr(module, "__all__", []):
        thing = getattr(module, name)  # fails for a name that does not exist
        if not inspect.isclass(thing) and not inspect.isroutine(thing):
            continue
        assert documented(thing), name
        for key, member in vars(thing).items() if inspect.isclass(thing) else ():
            if not key.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
                assert documented(member), f"{name}.{key}"


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_types_are_checked_without_exception(module: types.ModuleType) -> None:
    assert not re.search(r"#\s*(type:\s*ignore|mypy:|pyright:)", inspect.getsource(module))


def test_types_are_published() -> None:
    assert (resources.files("ultralif") / "py.typed").is_file()


def test_every_name_of_the_package_is_listed_and_there() -> None:
    listed = dir(ul)
    assert {"functional", "maxplus", "nn"} <= set(listed)
    for name in listed:
        assert getattr(ul, name) is not None
    assert {"UltraLIF", "Network", "set_mode", "mode", "NEURONS"} <= set(listed)
    with pytest.raises(AttributeError, match="UltraLiF"):
        _ = ul.UltraLiF


def test_training_imports_what_it_uses(python, tmp_path: Path) -> None:
    """Neither export nor analysis, nor torch's compiler, which takes longer than an epoch on the digits."""
    script = (
        "import sys; from ultralif.cli import main; "
        f"main(['train', '--epochs', '1', '--runs-dir', {str(tmp_path)!r}, '--json']); "
        "print([name for name in sys.modules if name.startswith(('ultralif.export', 'ultralif.analysis', "
        "'torch._dynamo', 'torch._inductor'))])"
    )
    assert python.run("-c", script).stdout.splitlines()[-1] == "[]"


def test_the_version_is_the_same_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ul.__version__)
    assert f"version: {ul.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'  version: "{ul.__version__}"\n' in (ROOT / "recipe" / "recipe.yaml").read_text()
    listed = json.loads((ROOT / "docs" / "sbom.cdx.json").read_text())["metadata"]["component"]
    assert listed["version"] == ul.__version__


def test_the_recipe_needs_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [f"python{project['requires-python']}", *project["dependencies"]]
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text()
    run = recipe.partition("\n  run:\n")[2].partition("\ntests:")[0]
    listed = [line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()]
    assert [name.replace("pytorch", "torch") for name in listed] == needed


def test_the_package_loads_quickly(python) -> None:
    """At most 0.3 s of the processor beyond torch, with its modules loaded: the best of several."""
    script = (
        "import time, torch; began = time.process_time(); "
        "import ultralif; ultralif.UltraLIF, ultralif.Network, ultralif.functional, ultralif.maxplus; "
        "print(time.process_time() - began)"
    )
    seconds = []
    for _ in range(5):
        seconds.append(float(python.run("-c", script).stdout))
        if min(seconds) <= 0.3:
            break
    assert min(seconds) <= 0.3


README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_readme_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its blocks are one session, read from the top."""
    assert BLOCKS
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), session)  # noqa: S102


def test_a_page_names_every_neuron_and_what_it_learns() -> None:
    page = (ROOT / "docs" / "neurons.md").read_text()
    for name in NEURON_NAMES:
        neuron = ul.NEURONS[name]
        (row,) = re.findall(rf"^\| `{name}` .*$", page, flags=re.MULTILINE)
        for mode in neuron.modes:
            assert mode in row, f"{name}: {mode}"
        for constant in neuron.learns:
            assert constant in row, f"{name}: {constant}"


def test_the_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target.partition("#")[0]).exists(), target


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 90


def test_no_two_classes_share_a_name() -> None:
    """A name in a message or a traceback says which class is meant."""
    homes: dict[str, list[str]] = {}
    for path in Path(ul.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path.name)
    assert not {name: found for name, found in homes.items() if len(found) > 1}
