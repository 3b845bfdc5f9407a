"""The emulated CUDA device: what it refuses, what it counts, and that its numbers are the CPU's."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from torch.autograd import Function

from emulated_gpu import counting, is_wanted

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")]
GPU = torch.device("cuda")


def test_a_tensor_is_on_the_device_with_the_numbers_of_the_cpu() -> None:
    rows, weight = torch.randn(5, 4), torch.randn(4, 3)
    there = rows.to(GPU)
    assert there.is_cuda and str(there.device) == "cuda:0"
    assert torch.equal((there @ weight.to(GPU)).relu().cpu(), (rows @ weight).relu())
    assert torch.equal(there[there[:, 0] > 0].t().contiguous().cpu(), rows[rows[:, 0] > 0].t())


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.numpy(),
        lambda x: x + torch.ones(3),
        lambda x: torch.cat([torch.ones(3), x]),
        lambda x: x.index_select(0, torch.tensor([1])),
        lambda x: torch.ones(3).add_(x),
        lambda x: x.index_add_(0, torch.tensor([0], device=GPU), torch.ones(1)),
        lambda x: x.pin_memory(),
        lambda x: torch.zeros(3, device=GPU, pin_memory=True),
        torch.nn.Linear(3, 2),
        lambda x: torch.ones(3, device="cuda:7"),
    ],
)
def test_what_a_gpu_refuses_is_refused(use) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"cuda|cpu|CPU|device"):
        use(torch.ones(3, device=GPU))


def test_a_number_of_the_host_may_meet_a_tensor_of_the_device() -> None:
    assert (torch.ones(3, device=GPU) * torch.tensor(2.0) + 1).tolist() == [3, 3, 3]


class _Where(Function):
    """Notes which thread runs its backward pass."""

    @staticmethod
    def forward(ctx, x, threads):
        ctx.threads = threads
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.threads.append(threading.current_thread())
        return gradient, None


def test_backward_passes_run_on_threads_of_the_device() -> None:
    threads: list[threading.Thread] = []
    for on in (True, False):
        with torch.autograd.set_multithreading_enabled(on):
            x = torch.ones(3, device=GPU, requires_grad=True)
            _Where.apply(x, threads).sum().backward()
        assert torch.equal(x.grad, torch.ones(3, device=GPU))
    assert threads[0] is not threading.main_thread() and threads[1] is threading.main_thread()


def test_optimizers_step_on_the_device() -> None:
    for make in (lambda p: torch.optim.Adam(p, fused=True), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
        torch.manual_seed(0)
        here = torch.nn.Linear(4, 2)
        there = torch.nn.Linear(4, 2).to(GPU)
        there.load_state_dict(here.state_dict())
        rows = torch.randn(3, 4)
        for module, x in ((here, rows), (there, rows.to(GPU))):
            optimizer = make(module.parameters())
            for _ in range(3):
                optimizer.zero_grad()
                module(x).logsumexp(1).sum().backward()
                optimizer.step()
        assert torch.allclose(here.weight, there.weight.cpu())


def test_sparse_tensors() -> None:
    indices, values = torch.tensor([[0, 2, 0], [1, 0, 1]]), torch.tensor([1.0, 2.0, 3.0])
    coo = torch.sparse_coo_tensor(indices.to(GPU), values.to(GPU), (3, 2), check_invariants=False).coalesce()
    whole = torch.tensor([[0.0, 4.0], [0.0, 0.0], [2.0, 0.0]])
    assert coo.is_cuda and coo.values().is_cuda and torch.equal(coo.to_dense().cpu(), whole)
    assert torch.equal((coo @ torch.ones(2, 2, device=GPU)).cpu(), whole @ torch.ones(2, 2))
    csr = torch.sparse_csr_tensor(
        torch.tensor([0, 1, 1, 2]).to(GPU),
        torch.tensor([1, 0]).to(GPU),
        torch.tensor([4.0, 2.0]).to(GPU),
        (3, 2),
        check_invariants=False,
    )
    assert torch.equal((csr @ torch.ones(2, 2, device=GPU)).cpu(), whole @ torch.ones(2, 2))


def test_a_stream_must_wait_for_what_it_reads() -> None:
    x, aside = torch.ones(3, device=GPU), torch.cuda.Stream(GPU)
    with torch.cuda.stream(aside), pytest.raises(RuntimeError, match=r"reads memory .* has not waited"):
        x + 1
    aside.wait_stream(torch.cuda.current_stream(GPU))
    with torch.cuda.stream(aside):
        made = x + 1
    with pytest.raises(RuntimeError, match=r"reads memory .* has not waited"):
        made + 1
    done = aside.record_event()
    torch.cuda.current_stream(GPU).wait_event(done)
    assert (made + 1).tolist() == [3, 3, 3]


def test_a_stream_must_not_write_what_another_one_reads() -> None:
    x, aside = torch.ones(3, device=GPU), torch.cuda.Stream(GPU)
    aside.wait_stream(torch.cuda.current_stream(GPU))
    with torch.cuda.stream(aside):
        x + 1
    with pytest.raises(RuntimeError, match=r"writes memory .* has not waited"):
        x.add_(1)
    aside.synchronize()
    x.add_(1)


def test_memory_must_not_be_freed_under_another_stream() -> None:
    aside = torch.cuda.Stream(GPU)

    def freed(*, named: bool) -> None:
        x = torch.ones(3, device=GPU)
        aside.wait_stream(torch.cuda.current_stream(GPU))
        with torch.cuda.stream(aside):
            x + 1
        if named:
            x.record_stream(aside)

    freed(named=True)
    torch.cuda.synchronize()
    freed(named=False)
    with pytest.raises(RuntimeError, match="record_stream or a wait is missing"):
        torch.cuda.synchronize()


def test_a_pinned_source_must_not_change_before_its_copy_is_over() -> None:
    source = torch.ones(3).pin_memory()
    assert source.is_pinned() and torch.zeros(2, pin_memory=True).is_pinned()
    there = source.to(GPU, non_blocking=True)
    source.numpy()[0] = 7  # what no dispatcher sees
    with pytest.raises(RuntimeError, match="before its copy to the device was over"):
        torch.cuda.synchronize()
    source = torch.ones(3).pin_memory()
    there.copy_(source, non_blocking=True)
    torch.cuda.current_stream(GPU).synchronize()
    source[0] = 7
    torch.cuda.synchronize()
    assert there.tolist() == [1, 1, 1]


def test_a_process_may_end_before_its_copies_are_known_to_be_over(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch; there = torch.zeros(2, 3, device='cuda')\n"
        "for _ in range(3): there.copy_(torch.ones(2, 3).pin_memory(), non_blocking=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "emulated_gpu", str(script)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_copy_to_the_host_is_there_only_when_it_is_over() -> None:
    target = torch.zeros(3, pin_memory=True)
    target.copy_(torch.ones(3, device=GPU), non_blocking=True)
    assert target.isnan().all()
    torch.cuda.synchronize()
    assert target.tolist() == [1, 1, 1]


def test_events_and_timing() -> None:
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    torch.ones(3, device=GPU)
    last.record()
    last.synchronize()
    assert first.elapsed_time(last) >= 0 and last.query()


def test_each_thread_has_a_current_device_and_streams_of_its_own() -> None:
    aside, seen = torch.cuda.Stream(GPU), []
    with torch.cuda.stream(aside):
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream(GPU)))
        thread.start()
        thread.join()
        assert torch.cuda.current_stream(GPU) == aside and seen[0] != aside


def test_memory_is_counted() -> None:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(1000, dtype=torch.float64, device=GPU)
    view = x[10:]
    assert torch.cuda.memory_allocated() == before + 8000
    del x, view
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() == before + 8000


def test_a_boolean_index_waits_and_a_boolean_table_does_not() -> None:
    table, ids = torch.tensor([True, False, True], device=GPU), torch.tensor([2, 0], device=GPU)
    with counting() as counts:
        table[ids]
    assert counts.totals["waits"] == 0
    with counting() as counts:
        ids[table[:2]]
    assert counts.totals["waits"] > 0


def test_launches_waits_and_bytes_are_counted() -> None:
    pageable, pinned = torch.ones(10), torch.ones(10).pin_memory()
    with counting() as counts:
        x = pageable.to(GPU)
        y = pinned.to(GPU, non_blocking=True)
        z = (x + y)[2:].view(2, 4)
        z.sum().item()
        z.cpu()
        torch.nonzero(z)
        x[torch.tensor([1, 2])]
    totals = counts.totals
    assert totals["h2d_copies"] == 3 and totals["h2d_bytes"] == 40 + 40 + 16
    assert totals["pageable_h2d_bytes"] == 40 + 16, "and so are indices that are on the host"
    assert totals["d2h_bytes"] == 4 + 32 and totals["d2h_copies"] == 2
    assert totals["waits"] == 5, "a pageable copy, item, cpu, nonzero, indices of the host"
    kernels = {kernel for name, kernel in counts.kernels if name == "launches"}
    assert {"aten::add", "aten::sum"} <= kernels and not any("view" in kernel for kernel in kernels)
