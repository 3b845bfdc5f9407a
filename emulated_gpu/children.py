"""Importing this module installs the device: workers of pytest and fork servers of ranks do so, before torch."""

from __future__ import annotations

from emulated_gpu import install

install()
