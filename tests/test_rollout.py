"""The engine plays many conversations at once and must leave no trace of having done so."""

import numpy as np
import pytest
import torch

from cookbook.chat import Chat
from cookbook.envs.probes import probe_tasks
from cookbook.episode import TOLD, load_episodes, save_episodes
from cookbook.evaluate import stop_ids
from cookbook.policy.score import token_logprobs
from cookbook.policy.scripted import ScriptedBackend
from cookbook.rollout import HFBackend, Sampling, rollout


def play(model, tokenizer, n=6, probe="placement", seed=(0,), env_options=None, **sampling):
    chat = Chat(tokenizer, "probe")
    sampling = Sampling(**{"turn_tokens": 6, "episode_tokens": 2_000, **sampling})
    backend = HFBackend(model, stop_ids(tokenizer, chat), sampling)
    return rollout(backend, chat, probe_tasks(probe, n), sampling, turn_limit=12, seed=seed, env_options=env_options)


def plain_logprobs(model, episode, temperature):
    ids = torch.tensor([episode.token_ids])
    mask = torch.tensor([[t != TOLD for t in episode.turn_ids]])
    with torch.inference_mode():
        logits = model(ids, use_cache=False).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0][mask[0, 1:]].numpy()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("cut", [False, True])
def test_logprobs_are_those_of_one_plain_forward_over_the_finished_episode(model, tokenizer, temperature, cut):
    # catches: wrong positions in the cache, junk of padded chunks attended to, rows mixed up when one leaves
    longest = max(len(e.token_ids) for e in play(model, tokenizer, n=8, probe="between")) if cut else 2_000
    episodes = play(model, tokenizer, n=8, probe="between", temperature=temperature, episode_tokens=longest - 60)
    episodes += play(model, tokenizer, n=8, probe="discount", temperature=temperature)
    assert len({len(e.token_ids) for e in episodes}) > 2, "chunks of unequal length are the point"
    assert {e.end for e in episodes} >= ({"context_limit"} if cut else {"lost"})
    for episode in episodes:
        kept = [p for p, t in zip(episode.logprobs, episode.turn_ids, strict=True) if t != TOLD]
        np.testing.assert_allclose(kept, plain_logprobs(model, episode, temperature), atol=2e-4)


def test_scoring_a_padded_batch_gives_what_sampling_gave(model, tokenizer):
    from cookbook.batch import pad

    episodes = play(model, tokenizer, n=5, temperature=0.7)
    ids = pad([e.token_ids for e in episodes])
    mask = pad([[t != TOLD for t in e.turn_ids] for e in episodes]).bool()
    with torch.inference_mode():
        scored, entropy = token_logprobs(model, ids, mask, 0.7)
    sampled = np.concatenate([[p for p, t in zip(e.logprobs, e.turn_ids, strict=True) if t != TOLD] for e in episodes])
    np.testing.assert_allclose(scored.numpy(), sampled, atol=2e-4)
    assert (entropy >= 0).all()


def test_an_episode_does_not_depend_on_its_neighbours(model, tokenizer):
    # catches: one random stream for a batch; a finished row shifting the others
    together = play(model, tokenizer, n=6, probe="discount")
    assert [e.token_ids for e in play(model, tokenizer, n=3, probe="discount")] == [e.token_ids for e in together[:3]]
    assert [e.token_ids for e in play(model, tokenizer, n=6, probe="discount", seed=(1,))] != [
        e.token_ids for e in together
    ]


def test_greedy_is_repeatable_and_ignores_the_seed(model, tokenizer):
    assert [e.token_ids for e in play(model, tokenizer, greedy=True)] == [
        e.token_ids for e in play(model, tokenizer, greedy=True, seed=(9,))
    ]


def test_sampled_tokens_follow_the_scored_distribution(tokenizer):
    # catches: top-k, a suppressed end token, a temperature forgotten on one side
    from conftest import small_llama

    model = small_llama(len(tokenizer), seed=3)
    episodes = play(model, tokenizer, n=600, probe="value", turn_tokens=1)
    red = [e for e in episodes if e.observations[0] == "red"]
    first = torch.tensor([red[0].token_ids[: red[0].prompt_length]])
    with torch.inference_mode():
        expected = model(first).logits[0, -1].softmax(-1).numpy()
    counts = np.bincount([e.token_ids[e.prompt_length] for e in red], minlength=len(expected)) / len(red)
    assert np.abs(counts - expected).max() < 5 * np.sqrt(0.25 / len(red))
    assert np.abs(counts - expected).sum() < 0.5


def test_token_ids_are_the_chunks_that_were_handed_over_and_the_commands(tokenizer):
    chat = Chat(tokenizer, "probe")
    backend = ScriptedBackend(chat, [["a", "b", "a"]])
    [episode] = rollout(backend, chat, probe_tasks("placement", 1), Sampling(episode_tokens=2_000), turn_limit=5)
    pieces = [backend.told[t][0] + chat.command_ids(c) for t, c in enumerate(episode.commands)]
    assert episode.token_ids == [i for piece in pieces for i in piece]
    assert episode.commands == ["a", "b", "a"]
    assert episode.rewards == [1.0, 0.0, 0.0]
    assert episode.end == "won"


def test_a_turn_cut_at_its_cap_gets_an_untrained_end_token(tokenizer):
    chat = Chat(tokenizer, "probe")
    backend = ScriptedBackend(chat, [["a", "b", "a"]], ended=False)
    [episode] = rollout(backend, chat, probe_tasks("placement", 1), Sampling(episode_tokens=2_000), turn_limit=5)
    ends = [t for i, t in zip(episode.token_ids, episode.turn_ids, strict=True) if i == chat.end_id]
    assert ends == [TOLD, TOLD]  # after turns 0 and 1; the episode stops inside turn 2


def test_turn_and_context_limits_end_with_their_own_reasons(tokenizer):
    chat = Chat(tokenizer, "probe")
    say = lambda: ScriptedBackend(chat, [["b"] * 9])  # noqa: E731
    [cut] = rollout(say(), chat, probe_tasks("placement", 1), Sampling(episode_tokens=2_000), turn_limit=2)
    assert (cut.end, cut.turns, cut.won) == ("turn_limit", 2, False)
    prompt = cut.prompt_length
    [full] = rollout(say(), chat, probe_tasks("placement", 1), Sampling(episode_tokens=prompt + 8), turn_limit=9)
    assert (full.end, full.turns) == ("context_limit", 1)
    assert full.final_observation == "next"
    with pytest.raises(ValueError, match="episode_tokens"):
        rollout(say(), chat, probe_tasks("placement", 1), Sampling(episode_tokens=prompt), turn_limit=9)


def test_a_dying_environment_costs_its_episode_only(tokenizer):
    from cookbook.tasks import Task

    chat = Chat(tokenizer, "probe")
    tasks = [Task("fake_envs:Moody", f"moody/{i}", i) for i in range(3)]
    backend = ScriptedBackend(chat, [["fine", "fine"], ["crash", "fine"], ["fine", "fine"]])
    episodes = rollout(backend, chat, tasks, Sampling(episode_tokens=2_000), turn_limit=2)
    assert [e.end for e in episodes] == ["turn_limit", "env_error", "turn_limit"]
    assert "signal" in episodes[1].info["error"]


def test_a_batch_in_which_nothing_starts_is_an_error_and_not_bad_luck(tokenizer):
    chat = Chat(tokenizer, "probe")
    backend = ScriptedBackend(chat, [["a"], ["a"]])
    with pytest.raises(RuntimeError, match=r"none of 2 environments.*flavour"):
        rollout(backend, chat, probe_tasks("value", 2), Sampling(), turn_limit=2, env_options={"flavour": "mint"})


def test_episodes_save_and_load_equal(model, tokenizer, tmp_path):
    episodes = play(model, tokenizer)
    save_episodes(episodes, tmp_path / "episodes.jsonl")
    assert load_episodes(tmp_path / "episodes.jsonl") == episodes
    (tmp_path / "bad.jsonl").write_text('{"task": 3}\n')
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 1"):
        load_episodes(tmp_path / "bad.jsonl")


@pytest.mark.parametrize(
    "bad",
    [{"temperature": 0}, {"temperature": "hot"}, {"turn_tokens": 0}, {"turn_tokens": 2.5}, {"episode_tokens": True}],
)
def test_bad_sampling_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampling(**bad)


def test_a_model_in_train_mode_is_refused(tokenizer):
    from conftest import small_llama

    model = small_llama(len(tokenizer)).train()
    with pytest.raises(RuntimeError, match="train mode"):
        play(model, tokenizer, n=1)
