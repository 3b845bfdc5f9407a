"""How many examples a property test draws: few in `make test` where each is dear, all in `make nightly`."""

from __future__ import annotations

from hypothesis import settings


def few(count: int) -> settings:
    """`count` examples, the same ones each time; in `make nightly` as many as every other test has, at random."""
    return settings(max_examples=count if settings.default.derandomize else settings.default.max_examples)
