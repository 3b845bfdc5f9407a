"""Which kernels `model.kernel` means, and where it refuses them."""

from __future__ import annotations

import pytest
import torch

from emulated_gpu import is_wanted
from gnnexp.errors import ConfigError
from gnnexp.ops import backends
from gnnexp.ops.backends import chosen_kernel, kernel_problem, make_backend


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """A machine with or without Triton, a build of torch for GPUs, and the interpreter."""

    def make(*, triton: bool, gpu: bool, interpreted: bool = False) -> None:
        monkeypatch.setattr(backends, "has_triton", lambda: triton)
        monkeypatch.setattr(backends, "has_nvidia_gpu_build", lambda: gpu)
        monkeypatch.setenv("TRITON_INTERPRET", "1" if interpreted else "0")

    return make


def test_auto_is_not_triton_before_a_gpu_has_proved_it(machine) -> None:
    for triton, gpu in ((True, True), (False, True), (True, False)):
        machine(triton=triton, gpu=gpu, interpreted=True)
        assert (chosen_kernel("auto", "cpu"), chosen_kernel("auto", "cuda")) == ("numba", "torch")
    assert chosen_kernel("torch", "cuda") == "torch"


@pytest.mark.parametrize(
    ("kernel", "device", "words"),
    [
        ("cuda", "cpu", "must be one of: auto, numba, triton, torch, dgl"),
        ("numba", "cuda", "must be triton, torch or auto"),
        ("dgl", "cuda", "must be triton, torch or auto"),
        ("triton", "cpu", "needs an NVIDIA GPU"),
    ],
)
def test_a_kernel_that_the_device_does_not_run_is_refused(machine, kernel: str, device: str, words: str) -> None:
    machine(triton=True, gpu=True)
    problem = kernel_problem(kernel, device)
    assert problem is not None and words in str(problem) and "model.kernel=auto" in str(problem)


def test_triton_runs_on_a_gpu_and_by_its_interpreter(machine) -> None:
    machine(triton=True, gpu=True)
    assert kernel_problem("triton", "cuda") is None and kernel_problem("triton", "auto") is None
    machine(triton=True, gpu=False)
    assert kernel_problem("triton", "cuda") is not None, "the emulated device runs no compiled kernel"
    machine(triton=True, gpu=False, interpreted=True)
    assert kernel_problem("triton", "cuda") is None and kernel_problem("triton", "cpu") is None


@pytest.mark.skipif(is_wanted(), reason="the device is the CPU's")
def test_triton_that_is_not_installed_names_the_command(machine) -> None:
    machine(triton=False, gpu=True)
    with pytest.raises(ConfigError, match=r"pip install 'gnnexp\[triton\]', or model.kernel=auto"):
        make_backend("triton", torch.device("cpu"))


def test_dgl_that_is_not_installed_is_named_before_ranks_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "is_installed", lambda _: False)
    problem = kernel_problem("dgl", "cpu")
    assert problem is not None and "needs the package dgl" in problem.allowed and "model.kernel=auto" in problem.fix
    assert backends.kernel_elsewhere("dgl", "cpu") == "auto"


def test_an_old_or_missing_triton_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, installed, counts in (
        ("3.2.0", True, False),
        ("3.6.0", True, True),
        ("3.10.1", True, True),
        ("3.9.0", False, False),
    ):
        monkeypatch.setattr(backends, "version", lambda _, version=version: version)
        monkeypatch.setattr(backends, "is_installed", lambda _, installed=installed: installed)
        assert backends.has_triton() is counts


def test_a_copy_of_a_model_elsewhere_uses_kernels_that_run_there(machine) -> None:
    machine(triton=True, gpu=True, interpreted=False)
    assert backends.kernel_elsewhere("triton", "cpu") == backends.kernel_elsewhere("numba", "cuda") == "auto"
    assert backends.kernel_elsewhere("torch", "cpu") == "torch"
    assert backends.kernel_elsewhere("triton", "cuda") == "triton"
