"""Texts of data, such as names of files and columns, in overrides and in YAML: composing gives them back unchanged.

Hydra reads `null`, `true` and `1e3` without quotes as values that are no texts, and takes no letters but A to Z there.
OmegaConf reads `${oc.env:HOME}` as an interpolation, also in quotes, unless a backslash is before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gnnexp.errors import ConfigError, Problem

_PLAIN = re.compile(r"[A-Za-z_/][\w./@+-]*", re.ASCII)
_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORDS = {"null", "true", "false", "nan", "inf"}
_MISSING = "???"
_SPECIAL_IN_KEYS = re.compile(r"([\\()\[\]{}:=,\s])")


def hydra_text(text: str) -> str:
    """A text as the value of an override, in quotes if Hydra would read it as something else without them.

    Raises:
        ConfigError: it is `???`, which no configuration can have as a text.
    """
    if text == _MISSING:
        raise ConfigError(
            Problem(
                "???",
                text,
                "means a missing value in configurations, so it can be no name",
                "rename the file or the column",
            )
        )
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", yaml_text(text))  # Hydra: a backslash is special only before a quote
    ending = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * ending}'"


def hydra_value(value: object) -> str:
    """A value of a resolved configuration as Hydra reads it in an override.

    Raises:
        ConfigError: a text is `???`.
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(str(key))}:{hydra_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    return hydra_text(value) if isinstance(value, str) else json.dumps(value)


def yaml_text(text: str) -> str:
    """A text as OmegaConf reads it without an interpolation. Backslashes are special only before `${`."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def yaml_of(values: object) -> str:
    """A part of a resolved configuration as YAML that is composed again.

    OmegaConf writes it. PyYAML leaves `1e3` without quotes, since it reads that as a text, and OmegaConf does not.
    """
    from omegaconf import OmegaConf

    return str(OmegaConf.to_yaml(OmegaConf.create(_escaped(values))))


def _escaped(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return yaml_text(value) if isinstance(value, str) else value


def is_hydra_key(text: str) -> bool:
    """Whether a text can be a key of a mapping in an override as it is. Hydra reads `null` and `12` as no texts."""
    return _KEY.fullmatch(text) is not None and text.lower() not in _WORDS


def _key(text: str) -> str:
    """A key of a mapping. Hydra has no quotes for keys: it takes a backslash before each special sign."""
    return _SPECIAL_IN_KEYS.sub(r"\\\1", text)
