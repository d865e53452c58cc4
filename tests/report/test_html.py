"""The page is one file, of the promised size, that runs nothing but its own script."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

import ultralif as ul
from report.made_runs import hostile, made_runs
from ultralif.cli import main
from ultralif.files import visible
from ultralif.report.document import make_document
from ultralif.report.gather import gather
from ultralif.report.html import SCRIPTS, make_page

PAGE = files("ultralif.report") / "page"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&\"'`${alert(1)}\u2028"


def parts(page: str) -> tuple[str, str, str, str]:
    """Return policy, style, data and script of a page."""
    found = re.fullmatch(
        r'.*content="(default-src.*?)">.*<style>(.*)</style>.*<script id="data" type="application/json">(.*?)'
        r"</script>\n<script>(.*)</script>\n</body>\n</html>\n",
        page,
        flags=re.DOTALL,
    )
    assert found
    policy, style, data, script = found.groups()
    return policy, style, data, script


def test_the_policy_allows_this_script_and_this_style_alone() -> None:
    policy, style, _, script = parts(make_page(make_document(made_runs(2), []), "A report"))
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for rule, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}


def test_nothing_is_fetched() -> None:
    page = make_page(make_document(made_runs(2), []), "A report")
    addresses = set(re.findall(r"https?://[^\"'\s]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG's elements, not a place
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b|\b(src|srcset|style)=", page)


def test_scripts_have_no_way_to_write_markup_or_run_text() -> None:
    for name in SCRIPTS:
        script = (PAGE / f"{name}.js").read_text()
        banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser"
        assert not re.search(banned, script), name
        assert "</script" not in script
    assert {f"{name}.js" for name in SCRIPTS} == {f.name for f in PAGE.iterdir() if f.name.endswith(".js")}


def test_hostile_text_stays_text() -> None:
    runs = made_runs(3)
    document = make_document([runs[0], hostile(runs[1], HOSTILE)], [HOSTILE])
    page = make_page(document, HOSTILE)
    _, _, data, _ = parts(page)
    assert "<" not in data
    assert json.loads(data)["notes"][-1] == visible(HOSTILE)
    assert page.count("<script") == 2
    assert "<img" not in page


def test_a_hundred_runs_are_at_most_500_kilobytes(tmp_path: Path) -> None:
    """With three trained networks to look into, in all modes; many steps or layers show fewer neurons."""
    for neuron in ("UltraLIF", "UltraDLIF", "UltraPLIF"):
        config = ul.RunConfig(neuron=neuron, epochs=1, timesteps=40, hidden=(64, 64))
        ul.train(config, runs_dir=tmp_path)
    entries, notes = gather([], tmp_path)
    page = make_page(make_document([*made_runs(97), *entries], notes), "A hundred runs")
    assert len(json.loads(parts(page)[2])["networks"]) == 3
    print(f"{len(page.encode()) / 1000:.0f} kB")
    assert len(page.encode()) <= 500_000


def test_the_command_writes_page_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ul.train(ul.RunConfig(epochs=1, timesteps=2), runs_dir=tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 0
    assert "report.html" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "<title>UltraLIF on digits</title>" in page
    assert main(["report", "--figures", "pictures", "--format", "svg", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["runs"] == 1
    assert sorted(said["written"]) == sorted(
        str(p.relative_to(tmp_path)) for p in Path(tmp_path, "pictures").iterdir()
    )


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["nothing"], "there is no run 'nothing'"),
        (["--out", "report.pdf"], "out must end in .html"),
        (["--runs-dir", "nowhere"], "there are no runs in nowhere"),
        (["--inside", "-1"], "inside must be 0 or more"),
    ],
)
def test_bad_input_is_one_sentence(
    argv: list[str],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ul.train(ul.RunConfig(epochs=1, timesteps=1), runs_dir=tmp_path / "runs")
    assert main(["report", *argv]) == 2
    assert complaint in capsys.readouterr().err


def test_help_needs_no_torch(python) -> None:
    script = (
        "import sys; from ultralif.cli import main\n"
        "try: main(['report', '--help'])\n"
        "finally: print('torch' in sys.modules)"
    )
    said = python.run("-c", script).stdout
    assert "self-contained" in said
    assert said.rstrip().endswith("False")


def test_control_characters_are_spelled_out() -> None:
    page = make_page({"name": "a\u202eb", "\x9b": ["\x1b[31m", 1]}, "t\u2066")
    assert not set(page) & set("\u202e\x9b\x1b\u2066") and "t\\u2066" in page
    assert '{"name":"a\\\\u202eb","\\\\x9b":["\\\\x1b[31m",1]}' in page
