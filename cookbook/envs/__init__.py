"""Environments: the real ones, behind one contract (base.Env). Nothing here imports torch."""

from typing import Any

from cookbook.envs.nursery import load

ENVS = {"textworld": "cookbook.envs.textworld.env:TextWorldEnv", "probe": "cookbook.envs.probes:ProbeEnv"}


def env_class(name: str) -> type:
    """The class of a known environment, or of "package.module:Class" for one's own.

    Raises ValueError that lists the known names.
    """
    if ":" not in name and name not in ENVS:
        raise ValueError(f"no environment {name!r}: use one of {', '.join(ENVS)}, or 'module:Class' of your own")
    return load(ENVS.get(name, name))


def make_env(name: str, **options: Any):
    """An environment, not yet reset."""
    return env_class(name)(**options)
