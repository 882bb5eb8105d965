"""PPO passes its probes, wrong variants fail them, and a stopped run goes on as if it had not been."""

from random import Random

import numpy as np
import pytest
import torch
from conftest import small_llama

from cookbook import report, train
from cookbook.chat import Chat
from cookbook.envs.probes import PROBES, probe_tasks
from cookbook.policy import LoraSettings, Policy
from cookbook.policy.scripted import ScriptedBackend
from cookbook.rollout import Sampling, rollout
from cookbook.settings import RLSettings
from cookbook.sft import warm_start
from cookbook.train import Reinforce, reinforce

PROBE_SETTINGS = {
    "iterations": 12, "episodes": 32, "turn_tokens": 2, "episode_tokens": 1_500, "learning_rate": 1e-3, "epochs": 2,
    "critic_learning_rate": 3e-3, "reward": "sparse", "kl_coefficient": 0.0, "lambda_token": 0.95,
}  # fmt: skip


@pytest.fixture(scope="module")
def undecided(tokenizer, tmp_path_factory):
    """A policy that says a and b equally often: where every probe begins."""
    chat, random = Chat(tokenizer, "probe"), Random(0)
    tasks = [task for probe in PROBES for task in probe_tasks(probe, 24)]
    commands = [[random.choice("ab") for _ in range(3)] for _ in tasks]
    demos = rollout(ScriptedBackend(chat, commands), chat, tasks, Sampling(episode_tokens=2_000), turn_limit=3)
    policy = fresh_policy(tokenizer)
    warm_start(policy, demos, epochs=4, learning_rate=1e-2)
    folder = tmp_path_factory.mktemp("undecided")
    policy.save(folder)
    return folder


def fresh_policy(tokenizer, seed=0):
    return Policy(small_llama(len(tokenizer), hidden=64), tokenizer, LoraSettings(16, 32), seed=seed)


def run(tokenizer, probe, prior=None, **changes):
    policy = fresh_policy(tokenizer)
    if prior:
        policy.load(prior)
    return policy, reinforce(policy, probe_tasks(probe, 64), RLSettings(**{**PROBE_SETTINGS, **changes}), quiet=True)


def late_success(history):
    return np.mean([row["success"] for row in history[-4:]])


@pytest.mark.learning
@pytest.mark.parametrize("probe", ["placement", "between"])
def test_ppo_learns_who_earned_the_reward(tokenizer, undecided, probe):
    _, history = run(tokenizer, probe, undecided)
    assert abs(history[0]["success"] - PROBES[probe].random) < 0.3
    assert late_success(history) > 0.9, PROBES[probe].isolates


@pytest.mark.learning
def test_without_a_learning_rate_nothing_is_learnt(tokenizer, undecided):
    _, history = run(tokenizer, "placement", undecided, learning_rate=0.0)
    assert late_success(history) < 0.75


@pytest.mark.learning
def test_a_reward_on_the_wrong_token_teaches_nothing(tokenizer, undecided, monkeypatch):
    # the reward of turn 1 lands on observation tokens and is lost: what a shifted mask does
    wrong = lambda alg, episodes, rewards, **more: right(alg, episodes, [[0.0] * len(r) for r in rewards], **more)  # noqa: E731
    right = train.advantages
    monkeypatch.setattr(train, "advantages", wrong)
    _, history = run(tokenizer, "placement", undecided)
    assert late_success(history) < 0.9


@pytest.mark.learning
def test_the_critic_learns_what_red_and_blue_are_worth(tokenizer):
    policy = fresh_policy(tokenizer)
    settings = RLSettings(
        **{**PROBE_SETTINGS, "learning_rate": 0.0, "clip_range_value": 10.0, "critic_learning_rate": 1e-2}
    )
    trainer = Reinforce(policy, probe_tasks("value", 64), settings, quiet=True)
    trainer.run()
    episodes = trainer.collect()
    for episode, value in zip(episodes, trainer.score(episodes, "critic"), strict=True):
        expected = float(episode.observations[0] == "red")
        assert abs(value[episode.prompt_length] - expected) < 0.3


def states(policy):
    return {
        name: p.detach().clone()
        for role in ("policy", "critic", "reference")
        for name, p in policy.parameters(role).items()
    }


def test_stopped_and_resumed_equals_not_stopped_bit_for_bit(tokenizer, tmp_path):
    settings = {**PROBE_SETTINGS, "iterations": 4, "episodes": 8, "kl_coefficient": 0.01}
    tasks = probe_tasks("discount", 20)
    whole = fresh_policy(tokenizer)
    reinforce(whole, tasks, RLSettings(**settings), tmp_path / "whole", quiet=True)
    reinforce(
        fresh_policy(tokenizer), tasks, RLSettings(**{**settings, "iterations": 2}), tmp_path / "parts", quiet=True
    )
    resumed = fresh_policy(tokenizer, seed=5)
    history = reinforce(resumed, tasks, RLSettings(**settings), tmp_path / "parts", resume=True, quiet=True)
    assert [row["iteration"] for row in history] == [0, 1, 2, 3]
    for name, expected in states(whole).items():
        assert torch.equal(states(resumed)[name], expected), name
    log = (tmp_path / "parts" / "log.csv").read_text().splitlines()
    assert len(log) == 5
    assert list((tmp_path / "whole").rglob("events.out.tfevents*")), "no TensorBoard log"


def test_ctrl_c_leaves_the_last_finished_iteration(tokenizer, tmp_path):
    def stop(trainer, row):
        if row["iteration"] == 1:
            raise KeyboardInterrupt

    settings = RLSettings(**{**PROBE_SETTINGS, "iterations": 5, "episodes": 4})
    with pytest.raises(KeyboardInterrupt):
        reinforce(fresh_policy(tokenizer), probe_tasks("value", 8), settings, tmp_path, after=stop, quiet=True)
    history = reinforce(fresh_policy(tokenizer), probe_tasks("value", 8), settings, tmp_path, resume=True, quiet=True)
    assert len(history) == 5


def test_a_checkpoint_that_cannot_be_read_or_is_of_another_run_is_refused(tokenizer, tmp_path):
    settings = {**PROBE_SETTINGS, "iterations": 1, "episodes": 4}
    tasks = probe_tasks("value", 8)
    reinforce(fresh_policy(tokenizer), tasks, RLSettings(**settings), tmp_path, quiet=True)
    with pytest.raises(ValueError, match=r"temperature 1\.0 there, 0\.5 here"):
        reinforce(
            fresh_policy(tokenizer), tasks, RLSettings(**settings, temperature=0.5), tmp_path, resume=True, quiet=True
        )
    (tmp_path / "checkpoint" / "adapters.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"adapters\.safetensors cannot be loaded"):
        reinforce(fresh_policy(tokenizer), tasks, RLSettings(**settings), tmp_path, resume=True, quiet=True)
    (tmp_path / "checkpoint" / "state.json").write_text("{")
    with pytest.raises(ValueError, match=r"cannot be read.*delete it"):
        reinforce(fresh_policy(tokenizer), tasks, RLSettings(**settings), tmp_path, resume=True, quiet=True)


def test_both_roles_move_and_the_reference_and_base_do_not(tokenizer):
    # catches: peft turning the other role's gradients off; a reference that shares weights with the policy
    policy = fresh_policy(tokenizer)
    before, base = states(policy), {n: p.clone() for n, p in policy.model.named_parameters() if "lora" not in n}
    reinforce(
        policy, probe_tasks("value", 16), RLSettings(**{**PROBE_SETTINGS, "iterations": 2, "episodes": 8}), quiet=True
    )
    moved = {
        role: max(float((states(policy)[n] - before[n]).abs().max()) for n in policy.parameters(role))
        for role in ("policy", "critic", "reference")
    }
    assert moved["policy"] > 0
    assert moved["critic"] > 0
    assert moved["reference"] == 0
    assert all(torch.equal(p, base[n]) for n, p in policy.model.named_parameters() if n in base)


def test_the_first_step_has_ratio_one_and_zero_kl(tokenizer):
    # catches: old log-probabilities at another temperature, dropout while sampling, a shifted mask
    for temperature in (0.5, 1.0):
        settings = RLSettings(
            **{**PROBE_SETTINGS, "iterations": 1, "epochs": 1, "minibatches": 1, "temperature": temperature}
        )
        policy = fresh_policy(tokenizer)
        [row] = reinforce(policy, probe_tasks("placement", 16), settings, quiet=True)
        assert abs(row["ratio_mean"] - 1) < 1e-4
        assert abs(row["kl"]) < 1e-4
        assert row["clip_fraction"] == 0


def test_every_logged_metric_is_described(tokenizer):
    _, history = run(tokenizer, "value", iterations=1, episodes=4)
    assert set(history[0]) <= set(report.METRICS), set(history[0]) - set(report.METRICS)
    assert set(report.METRICS) <= set(history[0]), set(report.METRICS) - set(history[0])


def test_the_gradient_does_not_depend_on_how_a_step_is_cut_into_batches(tokenizer):
    # catches: a mean of means; padding that leaks into the loss
    grads = {}
    for batch_tokens in (600, 100_000):
        policy = fresh_policy(tokenizer)
        trainer = Reinforce(
            policy,
            probe_tasks("discount", 16),
            RLSettings(**{**PROBE_SETTINGS, "episodes": 8, "batch_tokens": batch_tokens}),
            quiet=True,
        )
        rollouts, _ = trainer.credit(trainer.collect())
        grads[batch_tokens] = trainer.optimise("policy", rollouts, list(range(8)))["grad_norm_policy"]
    assert grads[600] == pytest.approx(grads[100_000], rel=1e-4)


def test_tasks_are_gone_through_once_before_any_comes_again(tokenizer):
    trainer = Reinforce(
        fresh_policy(tokenizer), probe_tasks("value", 10), RLSettings(episodes=5, minibatches=1), quiet=True
    )
    seen = []
    for trainer.iteration in range(4):
        seen += [task.seed for task in trainer.next_tasks()]
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]


def test_warm_start_learns_the_demonstrated_command_and_sets_the_reference(tokenizer):
    chat = Chat(tokenizer, "probe")
    demos = rollout(
        ScriptedBackend(chat, [["a"]] * 16),
        chat,
        probe_tasks("value", 16),
        Sampling(episode_tokens=2_000),
        turn_limit=1,
    )
    policy = fresh_policy(tokenizer)
    losses = warm_start(policy, demos, epochs=6, learning_rate=1e-2)
    assert losses[-1] < losses[0] / 3
    own, reference = policy.parameters("policy"), policy.parameters("reference")
    assert all(torch.equal(p, reference[n.replace(".policy.", ".reference.")]) for n, p in own.items())
    trainer = Reinforce(
        policy, probe_tasks("value", 16), RLSettings(**{**PROBE_SETTINGS, "turn_tokens": 4}), quiet=True
    )
    assert np.mean([e.commands[0] == "a" for e in trainer.collect()]) > 0.8


def test_demonstrations_that_train_nothing_or_everything_are_refused(tokenizer):
    from cookbook.episode import Episode

    nothing = Episode(probe_tasks("value", 1)[0], [5, 6], [-1, -1], [0, 0], [], [], [], "", "context_limit")
    with pytest.raises(ValueError, match="0 of 2 tokens"):
        warm_start(fresh_policy(tokenizer), [nothing])


@pytest.mark.parametrize(
    "bad",
    [{"iterations": 0}, {"episodes": -3}, {"episodes": 2.5}, {"learning_rate": -1.0}, {"learning_rate": "fast"},
     {"gamma_token": 1.5},
     {"temperature": 0.0}, {"reward": "niceness"}, {"minibatches": 99}, {"seed": -1}, {"clip_range": float("nan")}],
)  # fmt: skip
def test_bad_settings_are_refused_by_name(bad):
    [name] = bad
    with pytest.raises(ValueError, match=name if name != "reward" else "niceness"):
        RLSettings(**bad)


def test_adapters_and_value_head_come_back_in_a_fresh_model(tokenizer, tmp_path):
    from cookbook.batch import pad
    from cookbook.policy import token_values

    policy, _ = run(tokenizer, "value", iterations=2, episodes=8)
    policy.save(tmp_path)
    again = fresh_policy(tokenizer, seed=9).load(tmp_path)
    ids = pad([list(range(5, 30)), list(range(40, 60))])
    mask = torch.zeros_like(ids).bool()
    mask[:, 7:12] = True
    with torch.inference_mode():
        for role in ("critic", "policy"):
            values = [token_values(p.use(role).model, p.value_head, ids, mask) for p in (policy, again)]
            assert torch.equal(*values)


def test_merged_sampler_and_adapters_agree(tokenizer):
    policy, _ = run(tokenizer, "value", iterations=2, episodes=8)
    ids = torch.arange(5, 60)[None]
    with policy.sampling() as sampler:
        merged = sampler(ids).logits
    with torch.inference_mode():
        torch.testing.assert_close(policy.use("policy").model(ids).logits, merged, atol=1e-4, rtol=1e-4)
        policy.use("reference")
        assert not torch.allclose(policy.model(ids).logits, merged, atol=1e-3), "the reference moved with the policy"
