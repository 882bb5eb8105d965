"""Losses are compared with a slow loop, gradients with what they should and should not move, alarms with a script."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cookbook.loss import (
    AGGREGATIONS,
    Watchdog,
    aggregate,
    entropy,
    kl_estimate,
    policy_loss,
    ratio_max,
    repeated_share,
    value_loss,
    went_too_far,
)

LENGTHS = [3, 1, 5, 2]  # tokens of the four episodes of a step
TOTAL, INDEX = sum(LENGTHS), torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))


def random_tokens(n, seed=0):
    random = np.random.default_rng(seed)
    return [torch.tensor(random.normal(size=n)) for _ in range(3)]


# --- the clipped surrogate


def slow_terms(new, old, advantages, clip_range, dual_clip=None):
    for n, o, a in zip(new.tolist(), old.tolist(), advantages.tolist(), strict=True):
        ratio = math.exp(n - o)
        best = min(ratio * a, min(max(ratio, 1 - clip_range), 1 + clip_range) * a)
        yield -max(best, dual_clip * a) if dual_clip and a < 0 else -best


@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_the_clipped_loss_is_the_slow_loop(dual_clip):
    new, old, advantages = random_tokens(200)
    loss, stats = policy_loss(new, old, advantages, clip_range=0.2, total=400, dual_clip=dual_clip)
    slow = list(slow_terms(new, old, advantages, 0.2, dual_clip))
    assert loss.item() == pytest.approx(sum(slow) / 400)
    assert slow != list(slow_terms(new, old, advantages, 0.2, 3.0 if dual_clip is None else None))  # the option bites
    ratios = [math.exp(n - o) for n, o in zip(new.tolist(), old.tolist(), strict=True)]
    assert stats["clip_fraction"] == pytest.approx(sum(abs(r - 1) > 0.2 for r in ratios) / 400)
    assert stats["ratio_mean"] == pytest.approx(sum(ratios) / 400)
    assert stats["approx_kl"] == pytest.approx(sum(r - 1 - math.log(r) for r in ratios) / 400)
    assert ratio_max(new, old) == pytest.approx(max(ratios))
    assert ratio_max(new[:0], old[:0]) == 1.0


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual_clip", "moves"),
    [
        (1.5, 1, None, False), (1.5, -1, None, True), (0.5, 1, None, True), (0.5, -1, None, False),
        (4.0, -1, None, True), (4.0, -1, 3.0, False), (2.0, -1, 3.0, True), (0.5, 1, 3.0, True),
    ],
)  # fmt: skip
def test_the_gradient_stops_only_where_the_policy_has_gone_far_enough(ratio, advantage, dual_clip, moves):
    new = torch.tensor([math.log(ratio)], requires_grad=True)
    policy_loss(new, torch.zeros(1), torch.tensor([float(advantage)]), 0.2, 1, dual_clip)[0].backward()
    assert bool(new.grad.abs() > 0) is moves


def test_at_the_first_step_the_gradient_is_that_of_reinforce():
    old, advantages = torch.tensor([-1.0, -2.0, -0.5]), torch.tensor([2.0, -1.0, 0.0])
    new = old.clone().requires_grad_()
    loss, stats = policy_loss(new, old, advantages, 0.2, total=3)
    loss.backward()
    torch.testing.assert_close(new.grad, -advantages / 3)
    assert stats == {"clip_fraction": 0.0, "approx_kl": 0.0, "ratio_mean": 1.0}


# --- aggregation


def share(terms, index, aggregation):
    return aggregate(terms, TOTAL, aggregation, index, episodes=4, fixed_length=10)


def test_aggregations_by_hand():
    terms = torch.arange(11.0)  # episodes: 0 1 2 | 3 | 4 5 6 7 8 | 9 10
    assert share(terms, INDEX, "token_mean").item() == pytest.approx(55 / 11)
    assert share(terms, INDEX, "sequence_mean").item() == pytest.approx((1 + 3 + 6 + 9.5) / 4)
    assert share(terms, INDEX, "fixed_length").item() == pytest.approx(55 / 40)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_batches_of_a_step_add_up_to_the_step(aggregation):
    # catches: a mean over the batch's own tokens, so that a token of a small batch weighs more
    new, old, advantages = random_tokens(TOTAL)
    options = {"clip_range": 0.2, "total": TOTAL, "aggregation": aggregation, "episodes": 4, "fixed_length": 10}
    whole, stats = policy_loss(new, old, advantages, episode_index=INDEX, **options)
    parts = [
        policy_loss(new[m], old[m], advantages[m], episode_index=INDEX[m] - INDEX[m].min(), **options)
        for m in (INDEX < 1, INDEX >= 1)
    ]
    assert whole.item() == pytest.approx(sum(loss.item() for loss, _ in parts))
    assert stats == pytest.approx({name: sum(part[name] for _, part in parts) for name in stats})


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_what_a_token_weighs(aggregation):
    terms = torch.zeros(TOTAL, requires_grad=True)
    share(terms, INDEX, aggregation).backward()
    weights = {
        "token_mean": [1 / 11] * 4,
        "sequence_mean": [1 / 12, 1 / 4, 1 / 20, 1 / 8],
        "fixed_length": [1 / 40] * 4,
    }
    torch.testing.assert_close(terms.grad, torch.tensor(weights[aggregation])[INDEX])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregation": "median"}, "'median': use one of token_mean"),
        ({"aggregation": "sequence_mean", "episodes": 4}, "episode_index"),
        ({"aggregation": "sequence_mean", "episode_index": INDEX}, "episodes=None"),
        ({"aggregation": "fixed_length", "episodes": 4}, "fixed_length=None"),
        ({"dual_clip": 1.0}, "dual_clip=1.0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        policy_loss(*random_tokens(TOTAL), clip_range=0.2, total=TOTAL, **options)


def test_shapes_and_numbers_that_do_not_fit_are_refused_by_name():
    good, short, bad = torch.zeros(3), torch.zeros(2), torch.tensor([0.0, math.nan, 0.0])
    with pytest.raises(ValueError, match=r"flat tensors.*'old_logprobs': \(2,\)"):
        policy_loss(good, short, good, 0.2, 3)
    with pytest.raises(ValueError, match=r"flat tensors.*\(3, 1\)"):  # would broadcast to (3, 3)
        value_loss(good[:, None], good, good, 0.2, 3)
    with pytest.raises(FloatingPointError, match="not finite: advantages"):
        policy_loss(good, good, bad, 0.2, 3)
    with pytest.raises(FloatingPointError, match="not finite: returns"):
        value_loss(good, good, bad, 0.2, 3)
    with pytest.raises(FloatingPointError, match="the probability ratio"):
        policy_loss(good + 1_000, good, -good - 1, 0.2, 3)


# --- the critic


def test_the_value_loss_takes_the_worse_of_clipped_and_unclipped():
    values, old, returns = torch.tensor([2.0, 0.1]), torch.tensor([0.0, 0.0]), torch.tensor([2.0, 1.0])
    assert value_loss(values, old, returns, 0.5, 2).item() == pytest.approx(0.5 * (1.5**2 + 0.9**2) / 2)


def test_the_value_loss_is_the_slow_loop():
    values, old, returns = random_tokens(50)
    slow = 0.0
    for v, o, r in zip(values.tolist(), old.tolist(), returns.tolist(), strict=True):
        clipped = min(max(v, o - 0.5), o + 0.5)
        slow += 0.5 * max((v - r) ** 2, (clipped - r) ** 2)
    assert value_loss(values, old, returns, 0.5, 70).item() == pytest.approx(slow / 70)


# --- KL and entropy, on a vocabulary small enough to add up

POLICY, REFERENCE = torch.tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0.2, 0.3, 0.5]).log()


def expected(kind):
    """The estimator's mean under the policy, each token weighed by its probability."""
    return (POLICY.exp() * kl_estimate(POLICY, REFERENCE, kind)).sum().item()


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    exact = sum(p * math.log(p / q) for p, q in [(0.7, 0.2), (0.2, 0.3), (0.1, 0.5)])
    assert expected("k1") == pytest.approx(exact)
    assert expected("k3") == pytest.approx(exact)
    assert expected("k2") != pytest.approx(exact, rel=0.02)
    assert (kl_estimate(POLICY, REFERENCE, "k1") < 0).any()
    for kind in ("k2", "k3"):
        assert (kl_estimate(POLICY, REFERENCE, kind) > 0).all()


def gradient_as_a_loss(kind):
    """Expected gradient by the logits, of the estimator at tokens sampled from the policy."""
    logits = POLICY.clone().requires_grad_()
    (POLICY.exp() * kl_estimate(logits.log_softmax(-1), REFERENCE, kind)).sum().backward()
    return logits.grad


def test_as_a_loss_k1_pulls_nowhere_and_k2_pulls_as_the_kl_does():
    logits = POLICY.clone().requires_grad_()
    logprobs = logits.log_softmax(-1)
    (logprobs.exp() * (logprobs - REFERENCE)).sum().backward()
    torch.testing.assert_close(gradient_as_a_loss("k1"), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(gradient_as_a_loss("k2"), logits.grad)
    assert not torch.allclose(gradient_as_a_loss("k3"), logits.grad, atol=0.05)


@settings(max_examples=60, deadline=None)
@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k2_and_k3_are_never_negative_and_zero_at_the_reference(one, other):
    a, b = torch.tensor([one], dtype=torch.float64), torch.tensor([other], dtype=torch.float64)
    for kind in ("k1", "k2", "k3"):
        assert kl_estimate(a, a, kind).item() == 0
        assert kind == "k1" or kl_estimate(a, b, kind).item() >= 0


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ValueError, match="'k4': use one of k1, k2, k3"):
        kl_estimate(POLICY, REFERENCE, "k4")


def test_entropy_by_hand():
    assert entropy(torch.zeros(2, 4)).tolist() == pytest.approx([math.log(4)] * 2)
    logits = torch.tensor([0.0, 0.0, -math.inf], requires_grad=True)  # a token that is ruled out
    entropy(logits).backward()
    assert entropy(logits).item() == pytest.approx(math.log(2))
    assert torch.isfinite(logits.grad).all()
    assert entropy(POLICY).item() == pytest.approx(-sum(p * math.log(p) for p in (0.7, 0.2, 0.1)))


def test_an_entropy_bonus_flattens_the_policy():
    logits = POLICY.clone().requires_grad_()
    (-0.1 * entropy(logits)).backward()
    assert entropy(POLICY - logits.grad) > entropy(POLICY)


def test_epochs_stop_on_kl():
    assert went_too_far(0.031, target_kl=0.02)
    assert not went_too_far(0.029, target_kl=0.02)
    assert not went_too_far(9.0, target_kl=None)


# --- the watchdog

HEALTHY = {"entropy": 1.0, "kl": 0.02, "trained_share": 0.2, "repeated_share": 0.1, "reward_deviation": 0.4}
ILLS = {
    "entropy": (0.1, "stopped exploring.*entropy bonus"),
    "kl": (0.9, "runs away.*kl_coefficient"),
    "trained_share": (0.05, "ever fewer tokens.*read some episodes"),
    "repeated_share": (0.8, "again and again.*step_cost"),
    "reward_deviation": (0.0, "earn the same.*easier or harder"),
}


def replay(*rows):
    watchdog = Watchdog()
    return [watchdog(row) for row in rows]


def test_health_is_silent():
    assert replay(*[HEALTHY] * 20) == [[]] * 20
    assert replay(*[{"success": 0.5}] * 5) == [[]] * 5  # nothing that it reads


@pytest.mark.parametrize("name", ILLS)
def test_each_ill_is_told_once_when_it_has_lasted(name):
    value, words = ILLS[name]
    told = replay(*[HEALTHY] * 5, *[HEALTHY | {name: value}] * 6, HEALTHY, *[HEALTHY | {name: value}] * 3)
    assert [len(warnings) for warnings in told] == [0] * 7 + [1] + [0] * 6 + [1]
    assert re.search(f"{name} is.*3 iterations.*{words}", told[7][0])


def test_a_passing_spike_is_not_an_ill():
    spike = HEALTHY | {name: value for name, (value, _) in ILLS.items()}
    assert not any(replay(*[HEALTHY] * 3, *[spike, spike, HEALTHY] * 4))


def test_a_metric_that_is_not_a_number_is_an_ill():
    [warning] = replay(*[HEALTHY] * 3, *[HEALTHY | {"kl": math.nan}] * 3)[-1]
    assert "kl is nan" in warning


def test_a_collapse_to_one_sentence_raises_its_alarms():
    # catches: an alarm wired to the wrong metric; a run as issue threads describe it, getting worse each iteration
    worse = [HEALTHY | {"entropy": 0.7**i, "repeated_share": min(1, 0.1 * i), "kl": 0.02 * 1.5**i} for i in range(15)]
    told = " ".join(warning for warnings in replay(*worse) for warning in warnings)
    assert all(name in told for name in ("entropy is", "repeated_share is", "kl is"))
    assert "trained_share is" not in told
    assert "reward_deviation is" not in told


def test_repeated_commands_are_counted_within_an_episode():
    assert repeated_share([["look", "look", "go"], ["go", "go"], ["go"]]) == pytest.approx(2 / 3)
    assert repeated_share([["look"], []]) == 0.0
