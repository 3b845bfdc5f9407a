"""The peak rates of a device, as its maker states them. A missed target is printed next to its peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Bytes per second, direction and lane of PCIe, by generation; after its line code.
_LANE = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


@dataclass(frozen=True)
class Ceiling:
    """Per second; None where nobody says.

    Attributes:
        memory: bytes of the device's memory.
        float32, tf32, bf16: operations of dense products, without sparsity.
        link: bytes from the host, one direction.
    """

    memory: float | None = None
    float32: float | None = None
    tf32: float | None = None
    bf16: float | None = None
    link: float | None = None


# NVIDIA's data sheets; the first whose words are all in the device's name.
_SHEETS: tuple[tuple[tuple[str, ...], tuple[float, float, float, float]], ...] = (
    (("H200", "NVL"), (4.8e12, 60e12, 418e12, 836e12)),
    (("H200",), (4.8e12, 67e12, 495e12, 989e12)),
    (("H100", "NVL"), (3.9e12, 60e12, 418e12, 836e12)),
    (("H100", "PCIe"), (2.0e12, 51e12, 378e12, 756e12)),
    (("H100",), (3.35e12, 67e12, 495e12, 989e12)),
    (("A100", "80GB", "PCIe"), (1.935e12, 19.5e12, 156e12, 312e12)),
    (("A100", "80GB"), (2.039e12, 19.5e12, 156e12, 312e12)),
    (("A100",), (1.555e12, 19.5e12, 156e12, 312e12)),
)


def ceiling_of(device: str, driver: Mapping[str, float | str]) -> Ceiling:
    """Of a device by its name, and of its link by what nvidia-smi says of it."""
    sheet = next((figures for words, figures in _SHEETS if all(word in device for word in words)), None)
    generation, width = driver.get("pcie.link.gen.max"), driver.get("pcie.link.width.max")
    link = None
    if isinstance(generation, float) and isinstance(width, float) and int(generation) in _LANE:
        link = _LANE[int(generation)] * width
    return Ceiling(link=link) if sheet is None else Ceiling(*sheet, link)
