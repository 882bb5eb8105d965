"""Paths: where shipped data, the user's cache and runs live.

In:  environment variables COOKBOOK_DATA and COOKBOOK_CACHE, both optional.     Out: pathlib paths.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def data_dir() -> Path:
    """The shipped data: game packs, the tiny model, studies. Works from a clone and from an installed wheel.

    Raises FileNotFoundError that names the places looked at.
    """
    places = [PACKAGE.parent / "data", PACKAGE / "_data"]
    if "COOKBOOK_DATA" in os.environ:
        places = [Path(os.environ["COOKBOOK_DATA"])]
    for place in places:
        if (place / "README.md").is_file():
            return place
    raise FileNotFoundError(
        f"no cookbook data at {' or '.join(map(str, places))}: reinstall the package, or set COOKBOOK_DATA"
    )


def cache_dir() -> Path:
    """Where games are unpacked and compiled: $COOKBOOK_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "agentic-rl-cookbook"
    path = Path(os.environ.get("COOKBOOK_CACHE", default))
    path.mkdir(parents=True, exist_ok=True)
    return path
