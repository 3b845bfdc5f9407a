"""What every rank needs is loaded by importing this; for the fork server of `gnnexp.testing.ranks` alone."""

from __future__ import annotations

import gc

from gnnexp.testing.emulated import install, is_wanted

if is_wanted():  # before torch
    install()

from gnnexp.worker import preload

preload()
gc.collect()
gc.freeze()  # else a rank's first collection writes to, and so copies, every page of objects
