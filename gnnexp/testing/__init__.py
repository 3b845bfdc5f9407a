"""What gnnexp is tested with, for tests of one's own components: `docs/howto/testing.md`.

Nothing else of gnnexp imports this package. It needs `gnnexp[testing]`: pytest, hypothesis, cloudpickle.
"""
