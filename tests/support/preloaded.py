"""What ranks of a pool are forked from has loaded what every rank needs; imported by the pool's fork server alone."""

from __future__ import annotations

import gc

from gnnexp.worker import preload

preload()
gc.collect()
gc.freeze()  # else a rank's first collection writes to, and so copies, every page of objects
