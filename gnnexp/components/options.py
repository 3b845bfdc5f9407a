"""Checks of the options of a component, and the same options with other values."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from gnnexp.errors import Problem

Options = TypeVar("Options")


def rule_problems(*rules: tuple[bool, str, object, str, str]) -> list[Problem]:
    """The problems of choices that break their rules.

    Args:
        rules: of each choice: whether it is allowed, its key, its value, what is allowed, and the fix.
    """
    return [Problem(key, value, allowed, fix) for is_allowed, key, value, allowed, fix in rules if not is_allowed]


def wrong_options(group: str, *rules: tuple[bool, str, object, str, object]) -> list[Problem]:
    """The problems of options that break their rules.

    Args:
        group: config key of the component.
        rules: of each option: whether its value is allowed, its name, its value, what is allowed, and a usual value.
    """
    return rule_problems(
        *(
            (is_allowed, f"{group}.{name}", value, allowed, f"{group}.{name}={usual}")
            for is_allowed, name, value, allowed, usual in rules
        )
    )


def with_options(options: Options, **changes: object) -> Options:
    """The same options with other values. A user's class may lack some of these options: they are left out."""
    own: Any = options  # a frozen dataclass, which base classes do not show
    names = {field.name for field in fields(own)}
    changed: Options = replace(own, **{name: value for name, value in changes.items() if name in names})
    return changed
