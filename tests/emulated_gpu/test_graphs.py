"""CUDA graphs of the emulated device: what a replay repeats, and what a capture refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from emulated_gpu import counting, is_wanted

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")]
GPU = torch.device("cuda")


@contextmanager
def capture(graph: torch.cuda.CUDAGraph) -> Iterator[torch.cuda.Stream]:
    """Capture what is launched inside, on a stream of its own."""
    stream = torch.cuda.Stream(GPU)
    before = torch.cuda.current_stream(GPU)
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            yield stream
    finally:
        torch.cuda.set_stream(before)  # after a failed capture, torch leaves the thread on the stream of the capture


def captured(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The graph of `work`, and the tensor that replays write to."""
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        result = work()
    return graph, result


def test_a_capture_runs_nothing_and_a_replay_everything() -> None:
    x, total = torch.ones(3, device=GPU), torch.zeros(3, device=GPU)
    graph, doubled = captured(lambda: total.add_(x).mul(2))
    assert total.tolist() == [0, 0, 0] and doubled.isnan().all()
    for number in (1.0, 2.0, 5.0):
        x.fill_(number)
        graph.replay()
    assert total.tolist() == [8, 8, 8] and doubled.tolist() == [16, 16, 16]


def test_a_number_of_the_host_is_the_same_in_every_replay() -> None:
    x, factor = torch.ones(2, device=GPU), torch.tensor(3.0)
    graph, product = captured(lambda: x * factor)
    factor.fill_(100)
    graph.replay()
    assert product.tolist() == [3, 3]


def test_a_replay_reads_the_addresses_of_the_capture() -> None:
    x = torch.nn.Parameter(torch.ones(2, device=GPU))
    earlier = x.data
    graph, doubled = captured(lambda: x.detach() * 2)
    x.data = torch.full((2,), 7.0, device=GPU)
    earlier.fill_(2)
    graph.replay()
    assert doubled.tolist() == [4, 4]


def test_memory_that_was_freed_after_the_capture_is_an_error() -> None:
    held = [torch.ones(2, device=GPU)]
    graph, _ = captured(lambda: held[0] * 2)
    graph.replay()
    held.clear()
    with pytest.raises(RuntimeError, match="memory that the graph uses was freed"):
        graph.replay()


def test_backward_passes_and_several_results_are_repeated() -> None:
    weight, rows = torch.ones(3, 2, device=GPU, requires_grad=True), torch.ones(4, 3, device=GPU)
    weight.grad = torch.zeros_like(weight)

    def step() -> Tensor:
        values, _ = (rows @ weight).sort(0)
        values.square().sum().backward()
        return values

    graph, values = captured(step)
    for number in (1.0, 2.0):
        rows.fill_(number)
        weight.grad.zero_()
        graph.replay()
        other = torch.ones(3, 2, requires_grad=True)
        (torch.full((4, 3), number) @ other).square().sum().backward()
        assert torch.equal(weight.grad.cpu(), other.grad) and values.unique().tolist() == [3 * number]


def test_a_replay_is_one_launch_and_a_capture_none() -> None:
    x = torch.ones(3, device=GPU)
    with counting() as counts:
        graph, _ = captured(lambda: (x + 1).mul(2).sum() + 0)
    assert counts.totals["launches"] == 0
    with counting() as counts:
        graph.replay()
    assert counts.totals["launches"] == 1 and counts.totals["waits"] == 0


def test_a_captured_copy_from_pinned_memory_reads_it_again() -> None:
    there, here = torch.zeros(2, device=GPU), torch.ones(2).pin_memory()
    graph, _ = captured(lambda: there.copy_(here, non_blocking=True))
    here.fill_(4)
    graph.replay()
    assert there.tolist() == [4, 4]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: float(x[0]),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
        lambda x: x.copy_(torch.ones(3)),
        lambda x: torch.ones(3, device=GPU).copy_(torch.ones(3), non_blocking=True),
        lambda x: torch.ones(3).pin_memory(),
        lambda x: torch.cuda.synchronize(),
        lambda x: torch.cuda.current_stream(GPU).synchronize(),
        lambda x: torch.cuda.current_stream(GPU).query(),
    ],
)
def test_a_capture_refuses_waits_and_copies_from_memory_that_is_not_pinned(use) -> None:
    x = torch.ones(3, device=GPU)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="previous error during capture") as caught, capture(graph):
        use(x)
    assert "not permitted when stream is capturing" in str(caught.value.__context__)
    with pytest.raises(RuntimeError, match="without a capture"):
        graph.replay()
    assert (x + 1).tolist() == [2, 2, 2], "the device works on"


def test_streams_join_a_capture_and_must_be_joined_at_its_end() -> None:
    x, aside, graph = torch.ones(2, device=GPU), torch.cuda.Stream(GPU), torch.cuda.CUDAGraph()
    with capture(graph) as stream:
        aside.wait_stream(stream)
        with torch.cuda.stream(aside):
            y = x + 1
        stream.wait_stream(aside)
        z = y * 2
    x.fill_(2)
    graph.replay()
    assert z.tolist() == [6, 6]
    with pytest.raises(RuntimeError, match="unjoined work"), capture(torch.cuda.CUDAGraph()) as stream:
        aside.wait_stream(stream)
        with torch.cuda.stream(aside):
            x + 1


def test_a_capture_waits_for_no_event_from_outside() -> None:
    done = torch.cuda.current_stream(GPU).record_event()
    with pytest.raises(RuntimeError, match="previous error") as caught, capture(torch.cuda.CUDAGraph()) as stream:
        stream.wait_event(done)
    assert "not captured" in str(caught.value.__context__)


def test_the_default_stream_is_not_captured_and_captures_are_not_nested() -> None:
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()
    with capture(torch.cuda.CUDAGraph()):
        assert torch.cuda.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="another graph"):
            torch.cuda.CUDAGraph().capture_begin()
    assert not torch.cuda.is_current_stream_capturing()


def test_external_events_are_recorded_by_replays_and_others_never() -> None:
    x, graph = torch.ones(2, device=GPU), torch.cuda.CUDAGraph()
    outside = [torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)]
    inside = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    with capture(graph):
        for first, second in zip(outside, inside, strict=True):
            first.record()
            second.record()
            x.add_(1)
    times = []
    for _ in range(3):
        graph.replay()
        times.append(outside[0].elapsed_time(outside[1]))
    assert all(time > 0 for time in times) and len(set(times)) > 1
    with pytest.raises(RuntimeError, match="last recorded in a capturing stream"):
        inside[0].elapsed_time(inside[1])


def test_memory_of_a_graph_is_not_allocated_by_the_program() -> None:
    x = torch.ones(1000, device=GPU)
    before = torch.cuda.memory_allocated()
    graph, total = captured(lambda: (x + 1).mul(2).sum() + 0)
    assert torch.cuda.memory_allocated() - before == total.untyped_storage().nbytes()
    assert torch.cuda.max_memory_allocated() >= before + 2 * x.nbytes
    del graph, total
    assert torch.cuda.memory_allocated() == before
