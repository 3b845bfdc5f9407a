"""The wheels in a new environment, outside of the checkout: `python tests/wheel/smoke.py`, which is `make wheel-smoke`.

They are built, and installed with the versions of constraints.txt into a virtual environment in a temporary folder.
They are used from an empty folder with an empty home, as by somebody who has no checkout. Every command's exit code
and what it must print are compared; the first difference ends the script. It takes about 3 minutes on 2 cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from wheels import build_wheel  # noqa: E402  it lies in tests/support

# One case that the first run of the wheel makes; its key must be that of the checkout.
FIRST = ("dataset=digits", "train.epochs=2")


@dataclass(frozen=True)
class Place:
    """An environment of its own.

    Attributes:
        environment: the virtual environment.
        here: the current folder of commands, empty at first.
        variables: of commands: nothing of ours, an empty home.
    """

    environment: Path
    here: Path
    variables: dict[str, str]

    def pip(self, *words: str) -> None:
        """`pip …` in the environment; its output only if it fails."""
        self._timed(["-m", "pip", *words], f"pip {words[0]}", 0)

    def gnnexp(self, *words: str, code: int = 0, says: Sequence[str] = (), never: Sequence[str] = ()) -> str:
        """`gnnexp …`, which must end with `code` and print `says`, and nothing of `never`; returns what it printed."""
        command = [str(self.environment / "bin" / "gnnexp"), *words]
        printed = self._timed(command, f"gnnexp {' '.join(words)}", code)
        wrong = [word for word in says if word not in printed] + [word for word in never if word in printed]
        wrong += ["Traceback"] * ("Traceback" in printed)
        if wrong:
            sys.exit(f"FAILED: gnnexp {' '.join(words)}: {wrong} (must be there, or must not)\n{printed}")
        return printed

    def python(self, code: str) -> str:
        """What a program in the environment prints."""
        return self._timed(["-c", code], "python", 0)

    def _timed(self, command: list[str], name: str, code: int) -> str:
        started = time.monotonic()
        if command[0].startswith("-"):
            command = [str(self.environment / "bin" / "python"), *command]
        done = subprocess.run(
            command,
            cwd=self.here,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=1200,
            check=False,
        )
        print(f"{time.monotonic() - started:7.1f} s  {name}", flush=True)
        if done.returncode != code:
            sys.exit(f"FAILED: {name}: exit code {done.returncode}, not {code}\n{done.stdout}")
        return done.stdout


def main() -> int:
    """Build, install, use; 0 if everything is as it should be."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gnnexp-wheel-") as folder:
        wheel = build_wheel(ROOT, Path(folder) / "dist")
        papers = build_wheel(ROOT / "papers", Path(folder) / "papers")
        place = new_place(Path(folder))
        install(place, wheel)
        use(place)
        use_claims(place, papers)
        use_without_mlflow(place)
    print(f"the wheel works outside of the checkout: {time.monotonic() - started:.0f} s")
    return 0


def new_place(folder: Path) -> Place:
    """A virtual environment of this Python, an empty current folder, and an empty home."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "environment")], check=True)
    (folder / "here").mkdir()
    (folder / "home").mkdir()
    strange = ("GNNEXP_", "MLFLOW_", "NUMBA_", "PYTHON", "XDG_", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    cache = os.environ.get("PIP_CACHE_DIR") or str(Path("~/.cache/pip").expanduser())
    return Place(
        folder / "environment", folder / "here", {**variables, "HOME": str(folder / "home"), "PIP_CACHE_DIR": cache}
    )


def install(place: Place, wheel: Path) -> None:
    """torch on its own and first, as `make setup` does; then the wheel, which must need nothing more."""
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    place.pip("install", "-q", torch)
    place.pip("install", "-q", "-c", str(ROOT / "constraints.txt"), str(wheel))
    place.pip("check")


def use(place: Place) -> None:
    """What somebody types first."""
    place.gnnexp("--help", says=["gnnexp run dataset=digits"])
    place.gnnexp("info", says=["pip install 'gnnexp[dgl]'", "pip install 'gnnexp[metis]'", "neutrontp"])
    place.gnnexp("run", *FIRST, says=["compiling kernels into", "epoch   1", "dashboard: gnnexp ui"])
    (first,) = place.here.glob("runs/*/*/result.json")
    compare_key(json.loads(first.read_text()))
    kept = {str(file.relative_to(place.environment)) for file in place.environment.rglob("*.nbi")}
    if kept or not list(Path(place.variables["HOME"]).rglob("*.nbi")):
        sys.exit(f"FAILED: kernels must be kept in the home, not in site-packages: {sorted(kept)}")
    place.gnnexp("run", *FIRST, "hardware.workers=2", says=["epoch   1", "dashboard: gnnexp ui"], never=["compiling"])
    place.gnnexp("report", says=["digits"])
    place.gnnexp("report", "compare", *(str(file.parent) for file in sorted(place.here.glob("runs/*/*/result.json"))))
    place.gnnexp(
        "run", "dataset=digits", "system=gsplit", "hardware.workers=2", code=2, says=["pip install 'gnnexp[metis]'"]
    )
    place.gnnexp("sweep", "quickstart", "--dry-run", says=["2 runs", "dgl is not installed", "gnnexp[dgl]"])
    place.pip("install", "-q", "-c", str(ROOT / "constraints.txt"), f"gnnexp[all] @ {_wheel(place).as_uri()}")
    place.gnnexp("sweep", "quickstart", "--dry-run", says=["2 runs"], never=["not installed"])


def use_claims(place: Place, papers: Path) -> None:
    """The papers' claims are a wheel of their own."""
    place.gnnexp("claims", code=2, says=["no package of papers' claims is installed", "wheel gnnexp_papers"])
    place.pip("install", "-q", "-c", str(ROOT / "constraints.txt"), str(papers))
    place.pip("check")
    place.gnnexp("claims", "fastsample", says=["16 claims"])


def _wheel(place: Place) -> Path:
    (wheel,) = (place.environment.parent / "dist").glob("*.whl")
    return wheel


def compare_key(result: dict[str, object]) -> None:
    """A run of the wheel is recognised in the checkout, and the other way round."""
    from gnnexp.config.compose import compose
    from gnnexp.experiment.run_key import run_key
    from gnnexp.provenance.code import code_of_config

    provenance = result["provenance"]
    assert isinstance(provenance, dict)
    config = compose(FIRST).config
    expected = run_key(config, provenance["dataset_key"], code_of_config(config))
    if provenance["run_key"] != expected:
        sys.exit(
            f"FAILED: the run of the wheel has the key {provenance['run_key']}, in the checkout it is {expected}: "
            f"{provenance['code']}"
        )


def use_without_mlflow(place: Place) -> None:
    """The default tracker is missing: a problem before launch with its fix."""
    place.pip("uninstall", "-q", "-y", "mlflow", "mlflow-skinny", "mlflow-tracing")
    before = sorted(place.here.glob("runs/*/*"))
    place.gnnexp("run", *FIRST, code=2, says=["pip install 'mlflow>=3,<4'", "tracker=none"], never=["dashboard"])
    if sorted(place.here.glob("runs/*/*")) != before:
        sys.exit("FAILED: a run that cannot start leaves nothing")
    place.gnnexp("run", *FIRST, "tracker=none", says=["epoch   1"], never=["dashboard"])


if __name__ == "__main__":
    sys.exit(main())
