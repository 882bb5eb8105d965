"""Make the tiny base model again: `python -m cookbook.tiny make`. Every step resumes where it was stopped."""

import argparse
import json
import os
from pathlib import Path
from random import Random

from cookbook.envs.textworld.games import prepare_games, textworld_tasks
from cookbook.paths import cache_dir, data_dir
from cookbook.tiny.play import Names, Transcript, turn_compass

MIXTURE = {  # configuration: games, episodes a game, weight; those that are compared have equal weights
    "w2-o3-q4": (1_000, 4, 1.0),
    "w8-o3-q4": (250, 14, 1.0),
    "w2-o12-q4": (250, 9, 1.0),
    "w8-o12-q4": (250, 9, 1.0),
    "w4-o6-q8": (350, 6, 1.0),
    "w2-o3-q2": (150, 4, 0.25),
    "tw-simple-dense": (100, 6, 0.25),
}
STAGES = ((0.4, 0.2), (0.94, 0.8))  # (until this share of the tokens, share of episodes that follow the oracle)
PLAYED = 0.2  # the share of the played episodes that follow the oracle; pretraining draws them by the dial


def transcripts(workers: int) -> list[Transcript]:
    """Play the mixture, or read what an earlier call played."""
    path = cache_dir() / "tiny" / "play.jsonl"
    if not path.is_file():
        from cookbook.envs.pool import map_clean

        tasks = {name: textworld_tasks(name, "pretrain", games) for name, (games, *_) in MIXTURE.items()}
        prepare_games([task for some in tasks.values() for task in some], workers)
        jobs = [(task, MIXTURE[name][1], PLAYED) for name, some in tasks.items() for task in some]
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_suffix(".new"), "w") as out:
            played = dict(map_clean("cookbook.tiny.play:play", jobs, workers, progress="playing"))
            for index in sorted(played):
                if not isinstance(played[index], Exception):
                    out.writelines(json.dumps(row) + "\n" for row in played[index])
        path.with_suffix(".new").replace(path)
    with open(path) as lines:
        return [Transcript(**json.loads(line)) for line in lines]


def make(args: argparse.Namespace) -> None:
    """Games, play, tokenizer, pretraining, files."""
    import torch

    from cookbook.tiny.pretrain import pretrain, render
    from cookbook.tiny.tokenize import train_tokenizer

    torch.set_num_threads(args.threads)
    rows, random = transcripts(args.workers), Random("tokenizer")
    names = Names(rows)
    texts = [
        render(row, names.draw(row, random), turn_compass(random)) for row in random.sample(rows, min(4_000, len(rows)))
    ]
    tokenizer = train_tokenizer(texts, args.vocabulary)
    stages = ((1.0, 0.0),) if args.oracle_share == 0 else (*STAGES, (1.0, args.oracle_share))
    weights = {name: weight for name, (*_, weight) in MIXTURE.items()}
    checkpoint = cache_dir() / "tiny" / f"pretrain-{args.oracle_share}-{args.tokens}-{args.seed}.pt"
    model, facts = pretrain(rows, weights, stages, tokenizer, args.tokens, args.seed, checkpoint)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    making = {
        "oracle_share": args.oracle_share, "stages": stages, "seed": args.seed, "vocabulary": len(tokenizer),
        "weights": sum(p.numel() for p in model.parameters()), "games": {name: row[0] for name, row in MIXTURE.items()},
        "transcripts": len(rows), "torch_threads": args.threads, **facts,
        "curve": facts["curve"][:: max(1, len(facts["curve"]) // 100)],
    }  # fmt: skip
    (Path(args.out) / "making.json").write_text(json.dumps(making, indent=1) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m cookbook.tiny", description="The tiny base model.")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser(
        "make",
        help="games, play, tokenizer, pretraining; resumes",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    one.add_argument("--oracle-share", type=float, default=0.12, help="the dial of the last stage; 0 means in no stage")
    one.add_argument("--tokens", type=int, default=25_000_000, help="tokens to train on")
    one.add_argument("--vocabulary", type=int, default=2_048, help="entries of the tokenizer")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch")
    one.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that make and play games")
    one.add_argument("--out", type=Path, default=data_dir() / "models" / "tiny")
    one.set_defaults(run=make)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
