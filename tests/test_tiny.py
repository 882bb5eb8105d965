"""Pretraining play: every name is marked, renaming is one to one, and the dial is what it says."""

import re
from random import Random

import pytest
import torch

from cookbook.envs.textworld.games import textworld_tasks
from cookbook.tiny.play import Names, Transcript, entities, fill, marker, original_names, play, turn_compass
from cookbook.tiny.pretrain import in_command, render, share_at
from cookbook.tiny.tokenize import train_tokenizer

SAME = {word: word for word in ("north", "east", "south", "west")}


@pytest.fixture(scope="module")
def transcripts():
    tasks = [*textworld_tasks("w2-o3-q4", "sft", 6), *textworld_tasks("w4-o6-q8", "test", 2)]
    return [Transcript(**row) for task in tasks for row in play((task, 2, 0.5))]


def test_original_names_give_back_the_game_s_own_text(transcripts):
    # lower case: a name is written as the game's data has it; "a" before a vowel is mended
    from cookbook.envs.textworld.env import TextWorldEnv

    task = textworld_tasks("w2-o3-q4", "sft", 1)[0]
    env = TextWorldEnv(reveal=True)
    observation, _ = env.reset(task)
    names, _ = entities(task)
    again = fill(marker(names)(observation), {mark: name for mark, (_, name) in names.items()}, SAME)
    plain = lambda text: re.sub(r"\ban?\b", "a", text.lower())  # noqa: E731
    assert plain(again) == plain(observation)
    env.close()


def test_no_long_name_is_left_unmarked(transcripts):
    for transcript in transcripts:
        texts = [transcript.objective, *transcript.observations, *transcript.commands]
        for _, name in transcript.names.values():
            if " " in name:
                assert not any(name in text for text in texts), name


def test_renaming_is_one_to_one_of_the_same_type_and_keys_still_match(transcripts):
    names, random = Names(transcripts), Random(0)
    for transcript in transcripts * 3:
        drawn = names.draw(transcript, random)
        assert drawn.keys() == transcript.names.keys()
        for mark, (kind, _) in transcript.names.items():
            assert drawn[mark] in names.singles[kind]
        for key, lock in transcript.pairs:
            assert (drawn[key], drawn[lock]) in names.pairs[transcript.names[lock][0]]
        assert len(set(drawn.values())) == len(drawn), "two things of one name: the text would contradict itself"


def test_a_becomes_an_and_the_compass_stays_a_compass():
    assert (
        fill("there is \u27e8a k_0\u27e9 and the \u27e8k_0\u27e9", {"k_0": "old key"}, SAME)
        == "there is an old key and the old key"
    )
    for seed in range(30):
        turned = turn_compass(Random(seed))
        assert sorted(turned.values()) == sorted(SAME)
        opposite = {"north": "south", "east": "west", "south": "north", "west": "east"}
        assert all(turned[opposite[way]] == opposite[turned[way]] for way in turned)


def test_the_rendered_text_is_what_the_chat_renders(transcripts):
    from cookbook.chat import Chat

    texts = [render(t, original_names(t), SAME) for t in transcripts]
    tokenizer = train_tokenizer(texts, 600)
    chat, transcript = Chat(tokenizer), transcripts[0]
    plain = [fill(t, original_names(transcript), SAME) for t in (transcript.objective, *transcript.observations)]
    said = [fill(command, original_names(transcript), SAME) for command in transcript.commands]
    ids = chat.prompt(plain[0], plain[1])
    for command, observation in zip(said, plain[2:], strict=True):
        ids += chat.command_ids(command) + chat.chunk(observation, ended=True)
    whole = tokenizer(texts[0], add_special_tokens=False)["input_ids"]
    assert ids[: len(whole)] == whole
    assert tokenizer.decode(ids[len(whole) :]) == "<|assistant|>"


def test_commands_are_found_with_their_end():
    # user 5 6 assistant 7 8 end user 9 assistant 7 end pad
    ids = torch.tensor([[1, 5, 6, 2, 7, 8, 3, 1, 9, 2, 7, 3, 0]])
    assert in_command(ids)[0].int().tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0]


def test_the_dial_follows_its_stages():
    stages = ((0.4, 0.2), (0.9, 0.8), (1.0, 0.1))
    assert [share_at(p, stages) for p in (0.0, 0.39, 0.4, 0.89, 0.95, 1.0)] == [0.2, 0.2, 0.8, 0.8, 0.1, 0.1]
