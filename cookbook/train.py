"""Train: the loop one can read in one sitting: collect, credit, several clipped epochs, log, checkpoint.

In:  Policy, tasks, settings.     Out: the same Policy, trained; a history of metrics.
Leaves out: how episodes are played (rollout), paid (rewards), credited (credit); each is one call here.
Source: Schulman et al. 2017 (PPO); Wang & Ammanabrolu 2025 for its multi-turn form.
Taught in: notebooks/00_tour.ipynb, notebooks/40_recipe.ipynb
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

from cookbook import checkpoint, report
from cookbook.batch import buckets, pad, padding_share
from cookbook.chat import Chat
from cookbook.credit import advantages
from cookbook.episode import TOLD, Episode
from cookbook.evaluate import stop_ids
from cookbook.loss import policy_loss, value_loss
from cookbook.policy import Policy, token_logprobs, token_values
from cookbook.rewards import reward_function
from cookbook.rollout import HFBackend, rollout
from cookbook.settings import RLSettings, Stage
from cookbook.tasks import Task, TaskSet


@dataclass
class Rollouts:
    """An iteration's episodes with all that the update needs; one row an episode, right-padded per batch later."""

    episodes: list[Episode]
    advantages: list[np.ndarray]
    """(T,) each, whitened, 0 where the policy was told"""
    returns: list[np.ndarray]
    """(T,) each: what the critic should have said"""
    values: list[np.ndarray]
    """(T,) each: what it did say"""

    def batch(self, indices: list[int], device) -> dict[str, Tensor]:
        """ids and mask (rows, T), and flat tensors over the written tokens of these episodes."""
        episodes = [self.episodes[i] for i in indices]
        mask = [np.asarray(e.turn_ids) != TOLD for e in episodes]

        def flat(arrays):
            written = [np.asarray(a)[m] for a, m in zip(arrays, mask, strict=True)]
            return torch.tensor(np.concatenate(written), dtype=torch.float32)

        out = {
            "ids": pad([e.token_ids for e in episodes]),
            "mask": pad(mask).bool(),
            "old_logprobs": flat([e.logprobs for e in episodes]),
            "advantages": flat([self.advantages[i] for i in indices]),
            "returns": flat([self.returns[i] for i in indices]),
            "old_values": flat([self.values[i] for i in indices]),
        }
        return {name: tensor.to(device) for name, tensor in out.items()}


class Reinforce:
    """PPO over many turns. One `step()` is one iteration; `run()` is the loop around it.

    tasks: a TaskSet, or a curriculum: a list of Stages, gone through in order; the last one goes on for ever.
    """

    def __init__(
        self,
        policy: Policy,
        tasks: TaskSet | list[Stage],
        settings: RLSettings,
        folder: str | Path | None = None,
        quiet: bool = False,
    ):
        self.policy, self.settings = policy, settings
        self.stages = list(tasks) if not isinstance(tasks, TaskSet) else [Stage(tasks, settings.iterations)]
        if not self.stages or not all(stage.tasks for stage in self.stages):
            raise ValueError("no tasks to train on: every stage needs at least one")
        self.folder = Path(folder) if folder else None
        self.quiet, self.history, self.iteration = quiet, [], 0
        self.chat = Chat(policy.tokenizer, self.stages[0].tasks[0].env)
        self.reward = reward_function(settings.reward)
        self.accelerator = Accelerator(
            cpu=policy.device.type == "cpu",
            log_with="tensorboard" if self.folder else None,
            project_dir=str(self.folder) if self.folder else None,
        )
        if self.folder:
            self.accelerator.init_trackers("tensorboard")
        rates = {"policy": settings.learning_rate, "critic": settings.critic_learning_rate}
        self.optimizers = {
            role: self.accelerator.prepare(
                torch.optim.AdamW(policy.parameters(role).values(), lr=rate, betas=(0.9, 0.99), weight_decay=0.0)
            )
            for role, rate in rates.items()
        }

    def run(self, after: Callable[["Reinforce", dict], None] | None = None) -> list[dict]:
        """Every iteration that is still to come. Ctrl-C leaves the checkpoint of the last finished iteration."""
        total = self.settings.iterations
        bar = tqdm(total=total, initial=self.iteration, desc="reinforce", unit="it", disable=self.quiet)
        try:
            while self.iteration < total:
                row = self.step()
                recent = [r["success"] for r in self.history[-5:]]
                bar.set_postfix(success=f"{np.mean(recent):.2f}", kl=f"{row['kl']:.3f}")
                bar.update()
                if after:
                    after(self, row)
        finally:
            bar.close()
            if self.folder:
                self.accelerator.end_training()
        return self.history

    def step(self) -> dict:
        """Collect, credit, update, log, checkpoint. Returns the iteration's metrics (report.METRICS)."""
        start = time.perf_counter()
        episodes = self.collect()
        collected = time.perf_counter()
        rollouts, metrics = self.credit(episodes)
        credited = time.perf_counter()
        metrics |= self.update(rollouts)
        end = time.perf_counter()
        tokens = sum(len(e.token_ids) for e in episodes)
        metrics |= {
            "iteration": self.iteration,
            "seconds_rollout": collected - start,
            "seconds_credit": credited - collected,
            "seconds_update": end - credited,
            "tokens": tokens,
        }
        self.iteration += 1
        self.history.append(metrics)
        if self.folder:
            report.append_csv(self.folder / "log.csv", metrics)
            self.accelerator.log(metrics, step=self.iteration)
            checkpoint.save(self, self.folder / "checkpoint")
        return metrics

    def collect(self) -> list[Episode]:
        """Play this iteration's games with the policy as it is."""
        settings = self.settings
        with self.policy.sampling() as model:
            backend = HFBackend(model, stop_ids(self.policy.tokenizer, self.chat), settings.sampling)
            return rollout(
                backend, self.chat, self.next_tasks(), settings.sampling, settings.turn_limit,
                seed=(settings.seed, self.iteration),
            )  # fmt: skip

    def next_tasks(self) -> list[Task]:
        """This iteration's tasks: the stage's list in a new order each time it has been gone through."""
        number, local = 0, self.iteration
        while number < len(self.stages) - 1 and local >= self.stages[number].iterations:
            local -= self.stages[number].iterations
            number += 1
        tasks, n = self.stages[number].tasks, self.settings.episodes
        places = range(local * n, (local + 1) * n)
        rounds = {p // len(tasks) for p in places}
        orders = {r: np.random.default_rng([self.settings.seed, 7, number, r]).permutation(len(tasks)) for r in rounds}
        return [tasks[int(orders[p // len(tasks)][p % len(tasks)])] for p in places]

    def credit(self, episodes: list[Episode]) -> tuple[Rollouts, dict]:
        """Rewards, values and KL -> one advantage a token. Episodes whose environment died are left out."""
        played = [e for e in episodes if e.end != "env_error"]
        if not played:
            raise RuntimeError(f"all {len(episodes)} environments died: {episodes[0].info.get('error')}")
        settings = self.settings
        rewards = [self.reward(e) for e in played]
        reference = self.score(played, "reference")
        values = self.score(played, "critic")
        mask = [np.asarray(e.turn_ids) != TOLD for e in played]
        kl = [np.where(m, np.asarray(e.logprobs) - r, 0.0) for e, r, m in zip(played, reference, mask, strict=True)]
        token_advantages, returns = advantages(
            "ppo", played, rewards, values=values, token_penalties=[settings.kl_coefficient * k for k in kl],
            gamma=settings.gamma_token, lam=settings.lambda_token,
        )  # fmt: skip
        written = np.concatenate([k[m] for k, m in zip(kl, mask, strict=True)])
        all_returns, all_values = (
            np.concatenate([a[m] for a, m in zip(x, mask, strict=True)]) for x in (returns, values)
        )
        metrics = {
            "success": float(np.mean([e.won for e in played])),
            "reward": float(np.mean([sum(r) for r in rewards])),
            "turns": float(np.mean([e.turns for e in played])),
            "env_errors": len(episodes) - len(played),
            "invalid_share": float(np.mean([v for e in played for v in e.signals.get("invalid", [0.0])])),
            "kl": float(written.mean()),
            "trained_share": len(written) / sum(len(e.token_ids) for e in played),
            "value_explained": float(1 - np.var(all_returns - all_values) / max(np.var(all_returns), 1e-9)),
        }
        return Rollouts(played, token_advantages, returns, values), metrics

    @torch.inference_mode()
    def score(self, episodes: list[Episode], role: str) -> list[np.ndarray]:
        """The reference's log-probabilities, or the critic's values.   -> (T,) each, 0 where the policy was told"""
        self.policy.use(role)
        out = [np.zeros(len(e.token_ids)) for e in episodes]
        for group in buckets([len(e.token_ids) for e in episodes], self.settings.batch_tokens):
            ids = pad([episodes[i].token_ids for i in group]).to(self.policy.device)
            mask = pad([np.asarray(episodes[i].turn_ids) != TOLD for i in group]).bool().to(self.policy.device)
            with self.accelerator.autocast():
                if role == "critic":
                    flat = token_values(self.policy.model, self.policy.value_head, ids, mask)
                else:
                    flat, _ = token_logprobs(self.policy.model, ids, mask, self.settings.temperature)
            rows = torch.split(flat.float().cpu(), mask.sum(1).tolist())
            for i, row in zip(group, rows, strict=True):
                out[i][np.asarray(episodes[i].turn_ids) != TOLD] = row.numpy()
        return out

    def update(self, rollouts: Rollouts) -> dict:
        """Several clipped epochs over the episodes, each role on its own."""
        settings, sums, steps = self.settings, {}, 0
        for part in self.minibatches(len(rollouts.episodes)):
            for role in ("policy", "critic"):
                for name, value in self.optimise(role, rollouts, part).items():
                    sums[name] = sums.get(name, 0.0) + value
            steps += 1
        lengths = [len(e.token_ids) for e in rollouts.episodes]
        return {name: value / steps for name, value in sums.items()} | {
            "padding_share": padding_share(lengths, buckets(lengths, settings.batch_tokens))
        }

    def minibatches(self, n: int) -> Iterator[list[int]]:
        """Episodes of every optimiser step: a new split each epoch, a function of seed and iteration."""
        for epoch in range(self.settings.epochs):
            order = np.random.default_rng([self.settings.seed, self.iteration, epoch, 11]).permutation(n)
            yield from (part.tolist() for part in np.array_split(order, min(self.settings.minibatches, n)))

    def optimise(self, role: str, rollouts: Rollouts, part: list[int]) -> dict[str, float]:
        """One optimiser step of one role: forward and backward over all its batches, divided by all its tokens."""
        self.policy.use(role)
        settings, optimizer = self.settings, self.optimizers[role]
        lengths = [len(rollouts.episodes[i].token_ids) for i in part]
        total = sum(sum(t != TOLD for t in rollouts.episodes[i].turn_ids) for i in part)
        metrics: dict[str, float] = {}
        for group in buckets(lengths, settings.batch_tokens):
            batch = rollouts.batch([part[i] for i in group], self.policy.device)
            with self.accelerator.autocast():
                loss, stats = (
                    self.policy_objective(batch, total) if role == "policy" else self.value_objective(batch, total)
                )
            self.accelerator.backward(loss)
            for name, value in stats.items():
                metrics[name] = metrics.get(name, 0.0) + value
        weights = list(self.policy.parameters(role).values())
        norm = self.accelerator.clip_grad_norm_(weights, settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the {role}'s gradient is {norm.item()} in iteration {self.iteration}: no step was taken;"
                " lower its learning rate"
            )
        optimizer.step()
        optimizer.zero_grad()
        return metrics | {f"grad_norm_{role}": float(norm)}

    def policy_objective(self, batch: dict[str, Tensor], total: int) -> tuple[Tensor, dict]:
        """The clipped surrogate over this batch's share of `total` tokens."""
        logprobs, entropy = token_logprobs(self.policy.model, batch["ids"], batch["mask"], self.settings.temperature)
        loss, stats = policy_loss(
            logprobs, batch["old_logprobs"], batch["advantages"], self.settings.clip_range, total=total
        )
        return loss, stats | {"loss_policy": loss.item(), "entropy": entropy.sum().item() / total}

    def value_objective(self, batch: dict[str, Tensor], total: int) -> tuple[Tensor, dict]:
        """The clipped value loss over this batch's share of `total` tokens."""
        values = token_values(self.policy.model, self.policy.value_head, batch["ids"], batch["mask"])
        loss = value_loss(values, batch["old_values"], batch["returns"], self.settings.clip_range_value, total=total)
        return loss, {"loss_value": loss.item()}


def reinforce(
    policy: Policy, tasks, settings: RLSettings, folder=None, resume: bool = False, after=None, quiet: bool = False
) -> list[dict]:
    """Train; with `resume`, go on from the folder's checkpoint if it has one. Returns the history of metrics."""
    trainer = Reinforce(policy, tasks, settings, folder, quiet)
    if resume and folder and checkpoint.exists(Path(folder) / "checkpoint"):
        checkpoint.load(trainer, Path(folder) / "checkpoint")
    return trainer.run(after)
