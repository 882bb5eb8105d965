"""Report: histories and evaluations -> CSV, curves, figures.

In:  the rows that Reinforce.step gives.     Out: files, matplotlib axes.
Every logged metric has one line in METRICS; a test fails when one is missing.
"""

import csv
from pathlib import Path

METRICS = {
    "iteration": "which collect-and-update round, from 0",
    "success": "share of this iteration's games won, sampled at the training temperature",
    "reward": "mean over games of the summed turn rewards; 1 is a won game",
    "turns": "mean commands a game",
    "env_errors": "games whose environment died; they are left out of everything",
    "invalid_share": "share of commands that the game's parser did not understand",
    "kl": "nats a token away from the reference, mean of log policy - log reference over sampled tokens (k1)",
    "trained_share": "share of all tokens that the policy wrote, so that carry loss",
    "value_explained": "share of the returns' variance that the critic foresaw; 1 is perfect, 0 a constant",
    "padding_share": "share of computed tokens that were padding",
    "clip_fraction": "share of tokens whose probability ratio left the clip range",
    "approx_kl": "nats a token between the policy before and during the update (k3)",
    "ratio_mean": "mean probability ratio new / old; 1 at the first step",
    "loss_policy": "clipped surrogate, mean over optimiser steps",
    "loss_value": "clipped squared error of the critic, mean over optimiser steps",
    "entropy": "nats a token of the sampling distribution",
    "grad_norm_policy": "length of the policy adapter's gradient before it is shortened",
    "grad_norm_critic": "length of the critic's gradient before it is shortened",
    "tokens": "tokens of this iteration's games, told and written",
    "seconds_rollout": "time to play",
    "seconds_credit": "time for the reference and value passes and the advantages",
    "seconds_update": "time for the optimiser steps",
}

STAGES = ("base", "sft", "rl")  # in this order they take the palette's colours, in every figure


def append_csv(path: Path, row: dict) -> None:
    """Add one row; the first row writes the header. Rows from this iteration on are replaced."""
    rows = []
    if path.is_file():
        with open(path, newline="") as lines:
            rows = [old for old in csv.DictReader(lines) if int(old["iteration"]) < row["iteration"]]
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=[name for name in METRICS if name in row])
        writer.writeheader()
        writer.writerows([*rows, row])


def learning_curve(history: list[dict], ax=None, window: int = 5, **levels: float):
    """Training success by iteration with its running mean, and named horizontal levels (sft=0.4, ...)."""
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns

    ax = ax or plt.gca()
    table = pd.DataFrame(history)
    color = dict(zip(STAGES, sns.color_palette(), strict=False))
    sns.scatterplot(table, x="iteration", y="success", ax=ax, alpha=0.4, color=color["rl"], label="one iteration")
    mean = table["success"].rolling(window, min_periods=1).mean()
    sns.lineplot(x=table["iteration"], y=mean, ax=ax, color=color["rl"], label=f"mean of {window}")
    for name, level in levels.items():
        ax.axhline(level, linestyle="--", color=color.get(name, "grey"), label=name)
    ax.set(xlabel="iteration", ylabel="share of games won (sampled)", ylim=(0, 1))
    ax.legend(loc="lower right")
    return ax


def success_bars(rows: list[dict], ax=None):
    """Bars with 95 % intervals. rows: {"stage", "games", "success", "low", "high"}"""
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns

    ax = ax or plt.gca()
    table = pd.DataFrame(rows)
    games, stages = table["games"].unique(), table["stage"].unique()
    width = 0.8 / len(stages)
    for s, (stage, color) in enumerate(zip(stages, sns.color_palette(n_colors=len(stages)), strict=True)):
        part = table[table["stage"] == stage].set_index("games").loc[games]
        x = [g + (s - (len(stages) - 1) / 2) * width for g in range(len(games))]
        error = [(part["success"] - part["low"]).clip(lower=0), (part["high"] - part["success"]).clip(lower=0)]
        ax.bar(x, part["success"], width, yerr=error, capsize=3, label=stage, color=color)
    ax.set_xticks(range(len(games)), games)
    ax.set(ylabel="share of games won", ylim=(0, 1))
    ax.legend()
    return ax
