"""``python -m research theory`` from its arguments to its exit code."""

import json
from pathlib import Path

import pytest

from research.__main__ import main
from research.claims import CLAIMS, Claim


def test_json_is_one_list_of_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--json", "--only", "23", "2"]) == 0
    out = capsys.readouterr()
    rows = json.loads(out.out)
    assert [(row["claim"], row["verdict"]) for row in rows] == [(2, "holds"), (23, "fails")]
    assert "0.24326 > 0.013863" in rows[1]["counterexample"]
    assert out.err == ""


def test_lines_and_markdown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "claims.md"
    assert main(["theory", "--only", "22", "44", "--markdown", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("22  fails")
    assert lines[1].startswith("44  holds")
    assert lines[2] == "2 claims: 1 hold, 0 hold as corrected, 1 fail"
    assert page.read_text().count("\n| ") == 3  # a header and two claims
    for row in page.read_text().splitlines():
        if row.startswith("|"):
            assert row.replace("\\|", "").count("|") == 6


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", "--only", "50"]) == 2
    assert capsys.readouterr().err == "research: there is no claim 50; claims are numbered from 1 to 49\n"
    assert main(["theory", "--only", "x"]) == 2


def test_an_unsettled_claim_fails_the_job(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Claim(1, "l", "1", "s", lambda written, truth, draw: truth.true(False, "truth"))
    monkeypatch.setitem(CLAIMS, 1, odd)
    assert main(["theory", "--only", "1"]) == 1
    assert "unsettled" in capsys.readouterr().err
