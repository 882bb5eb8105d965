"""Rollout: the KV cache kept across turns, against prefilling the whole conversation anew at every turn.

    python benchmarks/rollout.py [--games 48] [--turns 12] [--threads 2]

Same model, same games, same random numbers, one run; both must sample the same tokens.
"""

import argparse
import time

import torch

from cookbook.chat import Chat
from cookbook.envs.textworld.games import prepare_games, textworld_tasks
from cookbook.evaluate import stop_ids
from cookbook.policy import load_model
from cookbook.rollout import HFBackend, Sampling, rollout


class PrefillEveryTurn(HFBackend):
    """Forgets its cache between turns, as an engine that knows only prompts does."""

    def start(self, rows):
        super().start(rows)
        self.told = [[] for _ in range(rows)]

    def keep(self, rows):
        self.told = [self.told[row] for row in rows]

    def write(self, chunks, uniforms, caps):
        self.told = [told + chunk for told, chunk in zip(self.told, chunks, strict=True)]
        super().start(len(self.told))
        turns = super().write(self.told, uniforms, caps)
        self.told = [told + ids for told, (ids, _) in zip(self.told, turns, strict=True)]
        return turns


class Timed:
    """Adds up the seconds a backend takes; the games' own time is the same for both."""

    def __init__(self, backend):
        self.backend, self.seconds = backend, 0.0
        self.start, self.keep = backend.start, backend.keep

    def write(self, *arguments):
        start = time.perf_counter()
        turns = self.backend.write(*arguments)
        self.seconds += time.perf_counter() - start
        return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=48)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="tiny")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model, tokenizer = load_model(args.model)
    chat, sampling = Chat(tokenizer), Sampling(1.0)
    tasks = textworld_tasks("w2-o3-q4", "train", args.games)
    prepare_games(tasks)
    found = {}
    for name, kind in (
        ("kept across turns", HFBackend),
        ("prefilled every turn", PrefillEveryTurn),
    ) * 2:  # the first round warms up
        backend = Timed(kind(model, stop_ids(tokenizer, chat), sampling))
        start = time.perf_counter()
        episodes = rollout(backend, chat, tasks, sampling, args.turns)
        found[name] = (backend.seconds, time.perf_counter() - start, [e.token_ids for e in episodes])
    (kept, kept_all, one), (anew, anew_all, two) = found.values()
    turns = sum(len(set(e.turn_ids)) - 1 for e in episodes) / len(episodes)
    tokens = sum(map(len, one))
    print(f"{args.games} games, {turns:.1f} turns and {tokens / args.games:.0f} tokens a game, {args.threads} threads")
    for name, (model_seconds, seconds, _) in found.items():
        print(f"{name:<22}{tokens / model_seconds:8.0f} tokens/s in the model, {seconds:6.2f} s with the games")
    same = sum(a == b for a, b in zip(one, two, strict=True))
    print(
        f"ratio {anew / kept:.2f} in the model, {anew_all / kept_all:.2f} with the games;"
        f" {same} of {args.games} episodes identical"
    )


if __name__ == "__main__":
    main()
