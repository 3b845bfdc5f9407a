"""`make gpu-proof` without a GPU: what it needs, what it keeps, and that its checks can fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from plain_checkout import not_core, plain_copy

from benchmarks.gpu import calibrate, ceilings, proof, report
from benchmarks.gpu.kernel_cases import Operation, operations, sparse_operations
from benchmarks.gpu.kernels_exact import BOUNDS, compared
from benchmarks.gpu.needed import MOST_BYTES, ROOT, needed_files
from benchmarks.gpu.report import Report, Row, is_done, read, table
from benchmarks.gpu.run_stage import module_of
from benchmarks.gpu.speed.epoch import TABLE
from benchmarks.gpu.speed.kernel_bench import sum_bytes
from benchmarks.gpu.speed.training import refusal, sampled
from benchmarks.gpu.stage import Stage, rate
from gnnexp.config.compose import compose
from gnnexp.ops.backend_numba import numba_backend
from gnnexp.ops.backend_torch import torch_backend
from gnnexp.planning.probes import STEP_OVERRIDES
from gnnexp.testing.blocks import awkward_blocks

CPU = torch.device("cpu")
FACTS = {"source": "a", "device": "x", "emulated": False, "torch": "2", "quick": False, "commit": "c"}
BLOCKS = awkward_blocks()


@pytest.mark.interpreter
def test_the_files_are_few_and_import_nothing_but_the_core(tmp_path: Path) -> None:
    files = list(needed_files())
    assert ROOT / "benchmarks/gpu/configs/step.json" in files and ROOT / "gnnexp/training/train.py" in files
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES
    folder = ROOT / "benchmarks" / "gpu"
    modules = [
        ".".join(("benchmarks", "gpu", *file.relative_to(folder).with_suffix("").parts))
        for file in folder.rglob("*.py")
        if file.stem != "__main__"
    ]
    assert {module_of(name) for name in proof.LIMITS} <= set(modules)
    place = plain_copy(tmp_path)
    # Blocks are numba's and torch's kernels, ways everything that trains.
    words = f"import importlib; [importlib.import_module(name) for name in {modules}]"
    environment = {**os.environ, "GNNEXP_WITHOUT": not_core(), "PYTHONPATH": str(ROOT / "tests/support/without")}
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=place, env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_configuration_of_steps_is_what_overrides_compose() -> None:
    assert json.loads(calibrate.CONFIG.read_text()) == compose([*STEP_OVERRIDES, "preflight=off"]).config


def test_rows_of_a_call_that_was_cut_short_are_kept_for_the_same_files_only(tmp_path: Path) -> None:
    path = tmp_path / "smoke.json"
    first = Report(path, FACTS, again=False)
    first.add([Row("good", values=(1.0,)), Row("bad", ok=False)])
    assert read(path)["complete"] is False and len(read(path)["rows"]) == 2, "a stage that is killed leaves this"
    later = Report(path, {**FACTS, "commit": "other"}, again=False)
    assert later.has("good") and not later.has("bad"), "what failed is tried again"
    later.add([Row("bad")])
    later.write(complete=True)
    assert [row["name"] for row in read(path)["rows"]] == ["good", "bad"]
    assert is_done(read(path), "a", quick=False)
    assert not is_done(read(path), "b", quick=False) and not is_done(read(path), "a", quick=True)
    for changed, again in (({"source": "b"}, False), ({"device": "y"}, False), ({}, True)):
        assert not Report(path, {**FACTS, **changed}, again=again).rows


def stage_in(folder: Path) -> Stage:
    return Stage(
        Report(folder / "smoke.json", FACTS, again=False), CPU, False, True, time.monotonic() + 60, ceilings.Ceiling()
    )


def test_a_check_that_raises_is_a_wrong_row_and_ends_nothing(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)

    def broken() -> Row:
        raise RuntimeError("CUDA error: an illegal memory access")

    stage.check("one", broken)
    stage.check("several", lambda: iter([Row("first"), Row("second", value=2.0, unit="s")]))
    rows = {row.name: row for row in stage.report.rows}
    assert not rows["one"].ok and "illegal memory access" in rows["one"].words
    assert set(rows) == {"one", "first", "second", "several"}
    stage.report.write(complete=True)
    assert not is_done(read(tmp_path / "smoke.json"), "a", quick=False)
    stage.check("several", broken)  # it is there
    stage.check("one", lambda: Row("one"))
    assert all(row.ok for row in stage.report.rows)


def test_a_missed_target_stands_beside_its_ceiling_and_is_nothing_wrong(tmp_path: Path) -> None:
    row = rate("h2d pinned", [4e10, 5e10, 9e10], "bytes/s", 6e10, 0.9)
    assert row.value == 5e10 and row.missed and row.ok
    reached = rate("d2h pinned", [5.5e10], "bytes/s", 6e10, 0.9)
    found = Report(tmp_path / "smoke.json", FACTS, again=False)
    found.add([row, reached, Row("gat", False, 1e-3, "relative error", words="loss differs")])
    shown = table({"smoke": read(tmp_path / "smoke.json"), "tests": {}}).splitlines()
    assert any(re.search(r"h2d pinned +5e\+10 +5.4e\+10 +6e\+10 .*MISSED$", line) for line in shown)
    assert any("d2h pinned" in line and "MISSED" not in line for line in shown)
    assert any("WRONG" in line and "loss differs" in line for line in shown)
    assert any("INCOMPLETE" in line for line in shown) and any("tests" in line and "MISSING" in line for line in shown)


def test_seconds_miss_a_target_that_they_exceed_and_what_was_not_run_says_why(tmp_path: Path) -> None:
    slow = Row("sampler", value=0.7e-3, unit="s", target=0.6e-3, at_most=True)
    assert slow.missed and not Row("sampler", value=0.5e-3, unit="s", target=0.6e-3, at_most=True).missed
    found = Report(tmp_path / "epoch.json", FACTS, again=False)
    found.add([slow, Row("sage, tier=uva", words="not run: the tree has no such tier")])
    shown = table({"epoch": read(tmp_path / "epoch.json")})
    assert "MISSED" in shown and "not run: the tree has no such tier" in shown
    del (old := json.loads((tmp_path / "epoch.json").read_text()))["rows"][0]["at_most"]
    assert table({"epoch": old}), "files of earlier versions have no such field"


def test_slices_are_words_for_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proof.main(["--minutes", "0.1", "--stages", "smoke,memory", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("no time is left") == 4
    assert {name for names in proof.SLICES.values() for name in names} == set(proof.LIMITS)
    for names in proof.SLICES.values():
        assert len(set(names)) == len(names)
    with pytest.raises(SystemExit):
        proof.main(["--stages", "sped", "--out", str(tmp_path)])


def test_lines_of_the_epoch_table_are_refused_only_for_options_that_this_version_lacks() -> None:
    names = [line.name for line in TABLE]
    assert len(set(names)) == len(names)
    for line in TABLE:
        config = line.config(quick=False)
        reason = refusal({**config, "hardware": {**config["hardware"], "device": "cuda"}})
        allowed = "matmul" in line.name or line.kernel == "triton"  # no Triton on this machine
        assert allowed or not reason, (line.name, reason)
    assert refusal(sampled("sage", "torch", steps=1, quick=True, seed=-1)).startswith("seed=-1")


def test_bytes_of_a_sum_are_those_of_rows_ids_and_bounds() -> None:
    block = BLOCKS["multigraph"]
    rows = block.num_edges * 64 * 4 + block.num_dst * 64 * 4
    assert sum_bytes(block, 64) == rows + block.sources.nbytes + 8 * block.num_dst


def test_ceilings_are_those_of_the_device_and_its_link() -> None:
    link = {"pcie.link.gen.max": 5.0, "pcie.link.width.max": 16.0}
    found = ceilings.ceiling_of("NVIDIA H200", link)
    assert (found.memory, found.link) == (4.8e12, pytest.approx(63.0e9, rel=1e-3))
    assert ceilings.ceiling_of("NVIDIA H100 PCIe", {}).memory == 2.0e12
    assert ceilings.ceiling_of("NVIDIA H100 80GB HBM3", {"pcie.link.gen.max": "[N/A]"}).link is None
    assert ceilings.ceiling_of("another", {}) == ceilings.Ceiling()


def test_a_call_without_time_says_so_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert proof.main(["--minutes", "0.1", "--stages", "smoke,calibrate", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert told.count("no time is left") == 2 and told.count("MISSING") == 2 and not any(tmp_path.iterdir())


def test_a_stage_that_is_complete_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proof, "_run", lambda name, options, seconds: pytest.fail(f"{name} runs"))
    done = Report(tmp_path / "smoke.json", {**FACTS, "source": proof.digest()}, again=False)
    done.write(complete=True)
    assert proof.main(["--stages", "smoke", "--out", str(tmp_path)]) == 0
    assert "done before" in capsys.readouterr().out
    with pytest.raises(pytest.fail.Exception, match="smoke runs"):
        proof.main(["--stages", "smoke", "--out", str(tmp_path), "--again"])


# Every block in one precision, in turns; both in `make test-slow`. tests/ops/test_backend.py has both for all kernels.
@pytest.mark.parametrize(
    ("kind", "which"),
    [
        pytest.param(kind, which, marks=() if (place + turn) % 2 == 0 else pytest.mark.slow)
        for turn, kind in enumerate(BOUNDS)
        for place, which in enumerate(BLOCKS)
    ],
    ids=str,
)
def test_operations_agree_between_numba_and_torch_on_the_cpu(which: str, kind: torch.dtype) -> None:
    """What a GPU gets is plain torch: the comparison itself is tried on the CPU."""
    block = BLOCKS[which]
    sides = (numba_backend(), block), (torch_backend(), block)
    found = [compared(one.name, one, *sides, kind) for one in (*operations(block, (16,)), *sparse_operations())]
    assert len({row.name for row in found}) == len(found) > 30
    assert not [row for row in found if not row.ok]


def test_a_wrong_kernel_is_found() -> None:
    """The controls: another sum, another gradient, another mask."""
    block = BLOCKS["multigraph"]
    numba, other = (numba_backend(), block), (torch_backend(), block)

    def row(call, mask: bool = False) -> Row:
        x = torch.rand(block.num_src, 8, dtype=torch.float64) + 0.1
        return compared("control", Operation("control", call, (x,), mask), numba, other, torch.float64)

    def is_other(kernels) -> bool:
        return kernels.name == "torch"

    assert row(lambda k, b, x: k.sums.aggregate(b, x, None, None)).ok
    assert not row(lambda k, b, x: k.sums.aggregate(b, x, None, None) * (1 + 1e-9 * is_other(k))).ok
    assert not row(lambda k, b, x: x.detach() + (x - x.detach()) * (1 + 1e-9 * is_other(k))).ok
    assert row(lambda k, b, x: x * 1e-300 * (x > 0.5), mask=True).ok
    tiny = row(lambda k, b, x: x * (x > 0.5) + 1e-300 * is_other(k), mask=True)
    assert not tiny.ok and "another mask" in tiny.words


def test_files_of_another_version_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "smoke.json").write_text(json.dumps({"schema": report.SCHEMA + 1, "complete": True}))
    assert read(tmp_path / "smoke.json") == {}
