"""A Python that has this folder on `PYTHONPATH`, and its children, lack the packages named in `GNNEXP_WITHOUT`."""

import os
import sys

# What is None here cannot be imported, and `importlib.util.find_spec` does not find it.
for _name in filter(None, os.environ.get("GNNEXP_WITHOUT", "").split(",")):
    sys.modules[_name] = None  # type: ignore[assignment]
