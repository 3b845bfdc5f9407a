"""gnnexp from Python: `run`, `runs`, `load`, and graphs of other libraries (docs/howto/python.md).

Every rank and every command imports this package, and needs none of these names. A name is imported when it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnexp.api.graphs import GivenGraph, from_dgl, from_networkx, from_pyg
    from gnnexp.api.listing import runs
    from gnnexp.api.record import BestModel, Run
    from gnnexp.api.running import run
    from gnnexp.api.trained import TrainedModel, load
    from gnnexp.errors import ConfigError, DataError, RunError

__all__ = [
    "BestModel",
    "ConfigError",
    "DataError",
    "GivenGraph",
    "Run",
    "RunError",
    "TrainedModel",
    "from_dgl",
    "from_networkx",
    "from_pyg",
    "load",
    "run",
    "runs",
]

_PLACES = {
    "run": "gnnexp.api.running",
    "runs": "gnnexp.api.listing",
    "Run": "gnnexp.api.record",
    "BestModel": "gnnexp.api.record",
    "load": "gnnexp.api.trained",
    "TrainedModel": "gnnexp.api.trained",
    **dict.fromkeys(("GivenGraph", "from_dgl", "from_networkx", "from_pyg"), "gnnexp.api.graphs"),
    "ConfigError": "gnnexp.errors",
    "DataError": "gnnexp.errors",
    "RunError": "gnnexp.errors",
}


def __getattr__(name: str) -> object:
    """The public name, from its module."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """The public names, and those of every module."""
    return sorted({*globals(), *__all__})
