"""The load of this machine while a run trains, under the names that MLflow's page of system metrics knows."""

from __future__ import annotations

import psutil

from gnnexp.provenance.machine import output_of

# Seconds between two samples. `nvidia-smi` takes a fraction of a second of a core, with the lowest priority.
PERIOD_S = 5.0
# By the driver's name: ours, and the factor. The driver's memory is in MiB.
_OF_GPU = {
    "utilization.gpu": ("utilization_percentage", 1.0),
    "memory.used": ("memory_usage_megabytes", 1.048576),
    "power.draw": ("power_usage_watts", 1.0),
}


def sample() -> dict[str, float]:
    """Utilisation of the whole machine: its processors since the last sample, its memory, and each graphics card now.

    Memory is in 10^6 bytes. What a card does not say is absent.
    """
    memory = psutil.virtual_memory()
    figures = {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": (memory.total - memory.available) / 1e6,
        "system_memory_usage_percentage": memory.percent,
    }
    said = output_of(["nvidia-smi", f"--query-gpu=index,{','.join(_OF_GPU)}", "--format=csv,noheader,nounits"])
    for line in said.splitlines():
        card, *values = (word.strip() for word in line.split(","))
        for (name, factor), value in zip(_OF_GPU.values(), values, strict=False):
            if value.replace(".", "", 1).isdigit():  # else `[N/A]`
                figures[f"gpu_{card}_{name}"] = factor * float(value)
    return {f"system/{name}": value for name, value in figures.items()}
