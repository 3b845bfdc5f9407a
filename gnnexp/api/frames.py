"""Tables as DataFrames. pandas and DuckDB are imported here, and only when a table is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gnnexp.components.packages import is_installed
from gnnexp.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pandas import DataFrame


def make_frame(
    rows: Sequence[Mapping[str, object]],
    columns: Sequence[str] | None = None,
    index: Sequence[int] | None = None,
    named: str | None = None,
) -> DataFrame:
    """A table with one row for each mapping. What a mapping does not have is NaN or None.

    Args:
        rows: values by column.
        columns: the columns in order; None: all names, in the order of the rows.
        index: labels of the rows; None: 0, 1, ...
        named: name of the index.

    Raises:
        ConfigError: pandas is not installed.
    """
    check_package("pandas", "a table is a pandas.DataFrame")
    import pandas as pd

    chosen = list(dict.fromkeys(name for row in rows for name in row)) if columns is None else list(columns)
    data = [[row.get(name) for name in chosen] for row in rows]
    return pd.DataFrame(data, columns=chosen, index=pd.Index(range(len(rows)) if index is None else index, name=named))


def check_package(package: str, why: str) -> None:
    """Check that an installed package is there.

    Raises:
        ConfigError: it is not installed.
    """
    if not is_installed(package):
        raise ConfigError(
            Problem("gnnexp", why, f"needs the package {package}, which is not installed", f"pip install {package}")
        )
