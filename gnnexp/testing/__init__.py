"""What gnnexp is tested with, for tests of one's own components: `docs/howto/testing.md`.

Nothing else of gnnexp imports this package. `plugin` needs pytest, `strategies` hypothesis, and `ranks` cloudpickle for
functions of tests (`gnnexp[testing]`); all else needs what a rank needs.
"""
