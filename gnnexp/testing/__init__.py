"""Helpers of gnnexp's tests, for tests of your own components too (`docs/howto/testing.md`).

No other package of gnnexp imports this one. `plugin` needs pytest, `strategies` needs hypothesis, and `ranks` needs
cloudpickle for functions of tests (`gnnexp[testing]`). All other modules need only what a rank needs.
"""
