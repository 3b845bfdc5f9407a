"""The matrix of exactness: every pair of values of its axes is in a case that is run, or is refused by a check."""
