"""What a user's Python calls; `gnnexp` itself gives these names (`gnnexp/__init__.py`)."""

from gnnexp.cli.kernels import place_kernels

place_kernels(tell=False)  # before any module below imports numba
