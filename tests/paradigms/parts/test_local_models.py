"""Models of several parts go on after a checkpoint, on whatever device their module is."""

from __future__ import annotations

import io

import pytest
import torch

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.measure.phases import PhaseTimer
from gnnexp.paradigms.parts.local_models import LocalModels

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")],
    ),
]


def _trained(models: LocalModels, module: torch.nn.Module, steps: int) -> torch.Tensor:
    """Each part takes some steps of its own."""
    assert models.optimizer is not None
    device = next(module.parameters()).device
    for _ in range(steps):
        for part in (0, 1):
            models.begin(part)
            models.optimizer.zero_grad()
            module(torch.full((3, 4), part + 1.0, device=device)).pow(2).sum().backward()
            models.optimizer.step()
        models.end()
    return torch.cat([value.detach().reshape(-1).cpu() for part in (0, 1) for value in models._values[part]])


def _begun(device: str) -> tuple[LocalModels, torch.nn.Module]:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 2).to(device)
    models = LocalModels(module, [0, 1])
    models.optimizer = torch.optim.Adam(module.parameters(), fused=True)
    return models, module


@pytest.mark.parametrize("device", DEVICES)
def test_states_of_parts_come_back_where_their_parameters_are(device: str) -> None:
    models, module = _begun(device)
    _trained(models, module, 2)
    file = io.BytesIO()
    torch.save(models.state_dict(), file)
    expected = _trained(models, module, 2)
    file.seek(0)
    again, other = _begun(device)
    again.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))  # as checkpoints are read
    assert torch.equal(_trained(again, other, 2), expected)
    assert all(value.device.type == device for values in again._values.values() for value in values)


def test_an_average_leaves_the_states_of_parts_alone() -> None:
    models, module = _begun("cpu")
    _trained(models, module, 3)
    before = [
        [{name: value.clone() for name, value in state.items()} for state in models._states[part]] for part in (0, 1)
    ]
    models.average({0: 0.25, 1: 0.75}, Communicator(Environment(), PhaseTimer(), torch.device("cpu")))
    for part in (0, 1):
        for found, kept in zip(models._states[part], before[part], strict=True):
            assert {*found} == {*kept} and all(torch.equal(value, kept[name]) for name, value in found.items())
    assert any(not torch.equal(one["exp_avg"], other["exp_avg"]) for one, other in zip(*before, strict=True))
