"""Threads in addition to the training loop work on the rank's device, with the threads that the loop leaves them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import numba
import pytest
import torch

from gnnexp.kernels.threads import begin_thread, kernel_threads, threads_next_to

CPU, SECOND = torch.device("cpu"), torch.device("cuda", 1)


def test_a_thread_beside_the_loop_has_one_thread_of_kernels() -> None:
    with ThreadPoolExecutor(1, initializer=begin_thread, initargs=(CPU,)) as pool:
        assert pool.submit(numba.get_num_threads).result() == 1


def test_kernels_have_threads_inside_the_context_only_and_never_more_than_the_rank() -> None:
    before, most = numba.get_num_threads(), numba.config.NUMBA_NUM_THREADS
    with pytest.raises(KeyError), kernel_threads(1):
        assert numba.get_num_threads() == 1
        raise KeyError("in a kernel")
    assert numba.get_num_threads() == before
    with kernel_threads(most + 7):
        assert numba.get_num_threads() == most
    assert numba.get_num_threads() == before


def test_a_thread_works_on_the_gpu_of_its_rank() -> None:
    with patch("torch.cuda.set_device") as told:
        begin_thread(CPU)
        assert not told.called
        begin_thread(SECOND)
    told.assert_called_once_with(SECOND)


@pytest.mark.parametrize(
    ("device", "cores", "threads", "expected"),
    [
        (CPU, 16, 1, 1),
        (SECOND, 16, 1, 15),
        (SECOND, 16, 4, 3),
        (SECOND, 2, 4, 1),
        (SECOND, 1, 1, 1),
        (SECOND, 4, 0, 3),
    ],
)
def test_beside_a_gpu_kernels_have_the_cores_that_the_loop_needs_not(device, cores, threads, expected) -> None:
    with patch("numba.get_num_threads", return_value=cores):
        assert threads_next_to(device, threads) == expected


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs, or make test-emulated-gpu")
def test_a_thread_of_a_second_gpu_has_it_as_its_current_device() -> None:
    with ThreadPoolExecutor(1, initializer=begin_thread, initargs=(SECOND,)) as pool:
        assert pool.submit(torch.cuda.current_device).result() == 1
    assert torch.cuda.current_device() == 0
