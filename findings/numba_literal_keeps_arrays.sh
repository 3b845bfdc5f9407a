#!/usr/bin/env bash
# numba 0.68.1: each call of a function with `literally` keeps its arrays until Python's collector runs.
#
# numba asks for the literal by an error, in every call, and the error and the frames of its callers form a cycle. A
# frame holds its local variables. So arrays outlive the call: gigabytes of rows, in a training loop that turns the
# collector off, as many do, or that measures its memory. A function without literals frees its arrays at once.
#
# Packages: numba 0.68.1, numpy 2. Nothing of gnnexp is used.
# Seen: "plain freed freed" and "literal kept kept, freed by gc".
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place/env"
"$place/env/bin/pip" install -q 'numba==0.68.1' 'numpy>=2'

cat > "$place/literal.py" <<'PYTHON'
import gc
import weakref

import numba
import numpy as np


@numba.njit
def plain(x, factor):
    return x.sum() * factor


@numba.njit
def literal(x, factor):
    return x.sum() * numba.literally(factor)


def call(function):
    x = np.ones(10)
    assert function(x, 3) == 30
    return weakref.ref(x)


def state(array):
    return "freed" if array() is None else "kept"


gc.disable()
for function in (plain, literal):
    first, second = call(function), call(function)
    said = f"{function.__name__} {state(first)} {state(second)}"
    if first() is not None:
        gc.collect()
        said += f", {state(first)} by gc"
    print(said)
PYTHON

seen=$("$place/env/bin/python" "$place/literal.py")
echo "$seen"
[ "$seen" = $'plain freed freed\nliteral kept kept, freed by gc' ] || { echo "the behaviour has changed"; exit 1; }
