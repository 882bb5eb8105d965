"""Checkpoint: a training run on disk, whole: weights, optimisers, history, where it stands.

In:  a Reinforce trainer.     Out: a folder that a fresh trainer continues from; on CPU bit for bit.
Every random number is keyed by (seed, iteration, ...), so the iteration is all the random state there is.
"""

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch


def exists(folder: Path) -> bool:
    """Whether there is a finished checkpoint."""
    return (folder / "state.json").is_file()


def save(trainer, folder: Path) -> None:
    """Write beside, then swap: a run killed here keeps the one before."""
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    trainer.policy.save(fresh)
    torch.save({role: o.state_dict() for role, o in trainer.optimizers.items()}, fresh / "optimizers.pt")
    state = {
        "iteration": trainer.iteration, "settings": asdict(trainer.settings), "tasks": fingerprint(trainer),
        "history": trainer.history,
    }  # fmt: skip
    (fresh / "state.json").write_text(json.dumps(state))
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def forget(run: Path) -> None:
    """Remove the checkpoint of a run that is complete; its log stays."""
    shutil.rmtree(run / "checkpoint", ignore_errors=True)


def fingerprint(trainer) -> str:
    """Short hash of what is trained on: every stage's tasks in order, and the iterations of all stages but the last."""
    rows = [([task.id for task in stage.tasks], stage.iterations) for stage in trainer.stages]
    rows[-1] = (rows[-1][0], None)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def load(trainer, folder: Path) -> None:
    """Continue from `save`. Raises ValueError naming what cannot be read, or the settings that differ."""
    try:
        state = json.loads((folder / "state.json").read_text())
        optimizers = torch.load(folder / "optimizers.pt", weights_only=True)
        saved, history, iteration = state["settings"], state["history"], state["iteration"]
    except Exception as error:
        raise ValueError(f"checkpoint {folder} cannot be read ({error}): delete it to start anew") from error
    ours = asdict(trainer.settings)
    differ = [
        f"{name} {saved.get(name)!r} there, {ours[name]!r} here"
        for name in ours
        if name != "iterations" and saved.get(name) != ours[name]
    ]
    if state["tasks"] != fingerprint(trainer):
        differ.append("other tasks")
    if differ:
        raise ValueError(f"checkpoint {folder} is of another run ({'; '.join(differ)}): delete it, or use its settings")
    trainer.policy.load(folder)
    for role, optimizer in trainer.optimizers.items():
        optimizer.load_state_dict(optimizers[role])
    trainer.history, trainer.iteration = history, iteration
