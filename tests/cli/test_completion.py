"""`gnnexp completion`: what bash's tab key offers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gnnexp.cli.commands.completion import script
from gnnexp.cli.main import run_command

FAKE = """gnnexp() { echo "asked:$*:$COMP_LINE"; }
"""


def offered(*words: str) -> list[str]:
    """What bash offers for the last of the words after `gnnexp`."""
    line = " ".join(["gnnexp", *words])
    typed = " ".join(f"'{word}'" for word in ("gnnexp", *words))
    state = f"COMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({typed}) COMP_CWORD={len(words)}"
    ask = f"{state}\n_gnnexp_completion\n"
    done = subprocess.run(
        ["bash", "-c", f"{FAKE}{script('bash')}\n{ask}printf '%s\\n' \"${{COMPREPLY[@]}}\""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["swe"], ["sweep"]),
        (["co"], ["count", "completion"]),
        (["sweep", "quick"], ["quickstart"]),
        (["report", "--mark"], ["--markdown"]),
        (["sweep", "quickstart", "--dry"], ["--dry-run"]),
        (["ui", "x"], [""]),
    ],
)
def test_names_need_no_process(words: list[str], expected: list[str]) -> None:
    assert offered(*words) == [one for one in expected if one]


def test_choices_and_keys_are_hydras() -> None:
    assert offered("run", "model=g") == ["asked:run", "--shell-completion", "query=bash:gnnexp", "model=g"]


def test_there_is_a_script_for_each_shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")
    assert run_command(["completion", "tcsh"]) == 2
    assert "bash or zsh" in capsys.readouterr().err
