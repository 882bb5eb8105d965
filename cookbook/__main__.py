"""The command line: `python -m cookbook COMMAND`, or `cookbook COMMAND`."""

import argparse
import os
import sys


def recipe(args: argparse.Namespace) -> None:
    """Notebook 40 through papermill into runs/."""
    from cookbook.run_recipe import run_recipe

    run_recipe(args.parameter, profile=args.profile)


def play(args: argparse.Namespace) -> None:
    """A person plays a game in the terminal."""
    from cookbook.envs.textworld.env import TextWorldEnv
    from cookbook.envs.textworld.games import textworld_tasks

    [task] = [t for t in textworld_tasks(args.game, args.split) if t.seed == args.seed] or [None]
    if task is None:
        seeds = [t.seed for t in textworld_tasks(args.game, args.split)]
        sys.exit(f"--seed {args.seed}: split {args.split} has seeds {seeds[0]} to {seeds[-1]}")
    env = TextWorldEnv(turn_limit=args.turns, reveal=True)
    observation, info = env.reset(task)
    print(f"{info['objective']}\n\n{observation}\n\n(help: what is possible; plan: the oracle's way; quit)")
    ended = truncated = False
    while not (ended or truncated):
        try:
            command = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            break
        if command in ("help", "plan"):
            print("\n".join(info["admissible" if command == "help" else "plan"]))
        elif command == "quit":
            break
        elif command:
            observation, _, ended, truncated, info = env.step(command)
            print(observation)
    print(
        "You won." if info["won"] else "You lost." if info["lost"] else "Not won.",
        f"Score {info['score']} of {info['max_score']}.",
    )
    env.close()


def games(args: argparse.Namespace) -> None:
    """Make games into the cache, and packs of them into data/."""
    from cookbook.envs.textworld import packs
    from cookbook.envs.textworld.games import game_path, prepare_games, textworld_tasks

    tasks = textworld_tasks(args.game, args.split, args.n)
    prepare_games(tasks, args.workers)
    print(f"{len(tasks)} games of {args.game}/{args.split} in {game_path(tasks[0]).parent}")
    if args.pack:
        packs.write_pack([game_path(task) for task in tasks], packs.pack_path(tasks[0]))
        print(f"packed into {packs.pack_path(tasks[0])}: {packs.pack_path(tasks[0]).stat().st_size / 1e6:.1f} MB")


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    shown = {"formatter_class": argparse.ArgumentDefaultsHelpFormatter}
    top = argparse.ArgumentParser(prog="cookbook", description="Multi-turn agentic RL: recipe, games, play.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    one = commands.add_parser("recipe", help="the whole recipe: notebook 40 into runs/", **shown)
    one.add_argument(
        "-p",
        "--parameter",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a notebook parameter",
    )
    one.add_argument("--profile", default="fast", help="parameters of notebooks/index.yml: fast, ci, study or gpu")
    one.set_defaults(run=recipe)

    one = commands.add_parser("play", help="play a game yourself", **shown)
    one.add_argument("--game", default="w2-o3-q4", help="wX-oY-qZ or tw-simple-DENSITY")
    one.add_argument("--split", default="sft", help="which seeds")
    one.add_argument("--seed", type=int, default=40_001)
    one.add_argument("--turns", type=int, default=24, help="turn limit")
    one.set_defaults(run=play)

    one = commands.add_parser("games", help="make TextWorld games, and packs of them", **shown)
    one.add_argument("game", help="wX-oY-qZ or tw-simple-DENSITY")
    one.add_argument("split", help="train, sft, val, test or pretrain")
    one.add_argument("-n", type=int, default=10, help="how many, from the split's first seed")
    one.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    one.add_argument("--pack", action="store_true", help="also write data/games/GAME-SPLIT.tar.xz")
    one.set_defaults(run=games)
    return top


def main(argv: list[str] | None = None) -> None:
    """Errors a user can mend are told in one line, without a traceback."""
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"cookbook: {error}")


if __name__ == "__main__":
    main()
