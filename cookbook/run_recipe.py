"""Run recipe: notebook 40 through papermill, from the command line.

In:  notebook parameters.     Out: runs/40_recipe/: the executed notebook, an HTML page, figures, the log of training.
Imports no torch: a wrong parameter is refused at once.
"""

import os
import sys
import time
from pathlib import Path

from cookbook.nbtools.cells import declared_parameters, read, read_results
from cookbook.nbtools.export import export
from cookbook.nbtools.index import load_index
from cookbook.nbtools.parameters import parse_value
from cookbook.nbtools.run import NotebookFailed, execute


def run_recipe(overrides: list[tuple[str, str]], profile: str = "fast") -> None:
    """Run notebook 40 through papermill into runs/, print base / SFT / RL and where the page is.

    Raises ValueError for a parameter that the notebook does not have, before anything starts.
    """
    entry = load_index()["40"]
    if profile not in entry.profiles:
        raise ValueError(f"no profile {profile!r}: use one of {', '.join(entry.profiles)}")
    declared = declared_parameters(read(entry.path))
    parameters = entry.profiles[profile] | {name: parse_value(text, declared.get(name, "")) for name, text in overrides}
    folder = Path("runs") / "40_recipe"
    os.environ.setdefault("OMP_NUM_THREADS", str(min(4, os.cpu_count() or 1)))  # of the kernel; more does not pay here
    start = time.time()
    try:
        nb = execute(entry.path, folder / "40_recipe.ipynb", parameters, profile=profile, cwd=Path.cwd())
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on from the last finished iteration")
    except NotebookFailed as error:
        sys.exit(f"\n{error}")
    page, *figures = export(folder / "40_recipe.ipynb", folder)
    print("\n" + summary(read_results(nb)))
    print(f"\n{(time.time() - start) / 60:.1f} minutes. Page: {page}   Figures: {', '.join(f.name for f in figures)}")
    print(
        'Next: another seed, make recipe ARGS="-p seed 1"; or play a game yourself, .venv/bin/python -m cookbook play'
    )


def summary(results: dict) -> str:
    """base / SFT / RL with intervals, as a small table."""
    lines = [f"{'share of held-out games won':<32}{'sampled':<24}greedy"]
    for stage in ("base", "sft", "rl"):
        cells = [
            "{:.2f} [{:.2f}, {:.2f}]".format(
                *(results[f"{stage}_success{kind}{edge}"] for edge in ("", "_low", "_high"))
            )
            for kind in ("", "_greedy")
        ]
        lines.append(f"{stage:<32}{cells[0]:<24}{cells[1]}")
    return "\n".join(lines)
