"""The options of a component with other values."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

Options = TypeVar("Options")


def with_options(options: Options, **changes: object) -> Options:
    """The same options with other values. A user's class may lack some of these options: they are left out."""
    own: Any = options  # a frozen dataclass, which base classes do not show
    names = {field.name for field in fields(own)}
    changed: Options = replace(own, **{name: value for name, value in changes.items() if name in names})
    return changed
