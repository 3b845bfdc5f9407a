"""Write the cases and the refused pairs again, and print their numbers."""

from __future__ import annotations

from matrix.axes import AXES
from matrix.cover import all_pairs
from matrix.files import drawn, write

if __name__ == "__main__":
    cases, refused = drawn()
    write(cases, refused)
    print(
        f"{len(all_pairs(AXES))} pairs: {len(cases)} cases cover all but {len(refused)}, which are refused; "
        f"{sum(cases.values())} of the cases are quick ones"
    )
