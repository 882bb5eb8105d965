"""The command: python -m cookbook.nbtools run NN, or check [NN ...].

In:  a notebook's number in index.yml.     Out: the notebook, executed, or what its form lacks.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cookbook.nbtools.cells import declared_parameters, read, read_results
from cookbook.nbtools.form import form_problems
from cookbook.nbtools.index import INDEX, PROFILES, Entry, failing_bands, load_index
from cookbook.nbtools.parameters import parse_value
from cookbook.nbtools.run import NotebookFailed, execute


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all went well, 1 when a notebook failed or lacks form, 2 for a wrong command, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m cookbook.nbtools", description="Run and check the notebooks.")
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="execute one; the fast profile's outputs are stored in the notebook")
    run_parser.add_argument("number", help="its number in notebooks/index.yml: 40")
    run_parser.add_argument("--profile", choices=PROFILES, default="fast")
    run_parser.add_argument(
        "-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="set a parameter; writes to runs/"
    )
    check_parser = commands.add_parser("check", help="say what is wrong with the form of these, or of all")
    check_parser.add_argument("numbers", nargs="*", metavar="number")
    given = parser.parse_args(arguments)
    try:
        index = load_index()
        if given.command == "check":
            return check([_entry(index, number) for number in given.numbers] or list(index.values()))
        return run(_entry(index, given.number), given.profile, given.p)
    except (ValueError, NotebookFailed, KeyboardInterrupt) as error:
        print(error or "interrupted", file=sys.stderr)
        return {NotebookFailed: 1, KeyboardInterrupt: 130}.get(type(error), 2)


def _entry(index: dict[str, Entry], number: str) -> Entry:
    if number not in index:
        raise ValueError(f"no notebook {number!r} in {INDEX}: it lists {', '.join(index)}")
    return index[number]


def check(entries: Sequence[Entry]) -> int:
    """Print every problem of form; 1 when there is one."""
    problems = [line for entry in entries for line in form_problems(entry.path, entry.claim, entry.uses == "cookbook")]
    print("\n".join(problems) or f"{len(entries)} notebooks in good form")
    return 1 if problems else 0


def run(entry: Entry, profile: str, overrides: Sequence[tuple[str, str]]) -> int:
    """Execute into runs/; store the result in place too when it is the fast profile with no parameter changed."""
    if profile not in entry.profiles:
        raise ValueError(f"{entry.file} has no profile {profile!r}: it has {', '.join(entry.profiles)}")
    if not entry.path.is_file():
        raise ValueError(f"{entry.path} is not there yet")
    declared = declared_parameters(read(entry.path))
    given = {name: parse_value(text, declared.get(name, "")) for name, text in overrides}
    out = Path("runs") / f"{entry.path.stem}-{profile}.ipynb"
    parameters = entry.profiles[profile] | given
    nb = execute(entry.path, out, parameters, profile=profile, wall_limit=entry.wall_limit[profile])
    stored = profile == "fast" and not given
    if stored:
        shutil.copyfile(out, entry.path)
    print(f"\n{entry.path if stored else out}: {nb.metadata['cookbook']['seconds']} s")
    if profile == "fast":
        print("\n".join(failing_bands(read_results(nb), entry.bands).values()) or "every band kept")
    return check([entry]) if stored else 0


if __name__ == "__main__":
    sys.exit(main())
