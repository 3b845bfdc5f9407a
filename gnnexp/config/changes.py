"""Changes of a configuration that leave it the same experiment: what a resumed run may have changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnnexp.config.overrides import parse
from gnnexp.errors import ConfigError, Problem

# What may be changed: where it runs and how records are kept, nothing that makes it another experiment.
CHANGEABLE = ("hardware.", "tracker.", "train.checkpoint_every", "train.checkpoints_kept", "train.overlap",
              "train.eval_memory")


def changed(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration with changes that leave it the same experiment.

    Raises:
        ConfigError: with every override that is not `key=value`, or changes something else.
    """
    parsed, problems = parse(overrides)
    result = json.loads(json.dumps(config))
    for override in parsed:
        key, value = str(override.key_or_group), override.value()
        if not key.startswith(CHANGEABLE):
            problems.append(Problem(key, value, f"a resumed run may only change {', '.join(CHANGEABLE)}",
                                    "leave it out, or start a new run"))
            continue
        *parents, last = key.split(".")
        node = result
        for parent in parents:
            node = node.setdefault(parent, {}) if isinstance(node, dict) else {}
        node[last] = value
    if problems:
        raise ConfigError([replace(problem, key=f"resume: {problem.key}") for problem in problems])
    return dict(result)
