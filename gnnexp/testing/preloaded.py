"""Importing this module loads everything that ranks need. Only the fork server of `gnnexp.testing.ranks` imports it."""

from __future__ import annotations

import gc

from gnnexp.training.rank import preload

preload()
gc.collect()
gc.freeze()  # else the first collection in a rank writes to all pages of objects, and so copies them
