"""Real games: made as tw-make makes them, cleaned as the paper cleans them, closed to tricks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cookbook.envs.textworld.env import TextWorldEnv, clean
from cookbook.envs.textworld.games import (
    SEEDS,
    Config,
    GameError,
    game_path,
    make_game,
    prepare_games,
    textworld_tasks,
)
from cookbook.envs.textworld.packs import pack_path, unpack
from cookbook.tasks import Task

TW_MAKE = Path(sys.executable).with_name("tw-make")


def opened(name, split="test", n=0, **options):
    env = TextWorldEnv(**{"turn_limit": 24, "reveal": True, **options})
    observation, info = env.reset(textworld_tasks(name, split, n + 1)[n])
    return env, observation, info


@pytest.mark.parametrize(
    ("name", "split", "arguments"),
    [
        ("w2-o3-q4", "test", ["custom", "--world-size", "2", "--nb-objects", "3", "--quest-length", "4"]),
        ("tw-simple-dense", "train", ["tw-simple", "--rewards", "dense", "--goal", "detailed"]),
    ],
)
def test_same_knobs_and_seed_give_the_game_of_tw_make(name, split, arguments, tmp_path):
    task = textworld_tasks(name, split, 1)[0]
    command = [
        sys.executable,
        TW_MAKE,
        *arguments,
        "--seed",
        str(task.seed),
        "--output",
        tmp_path / "game.z8",
        "--silent",
    ]
    subprocess.run(command, check=True, capture_output=True)
    theirs = json.loads((tmp_path / "game.json").read_text())
    ours = json.loads(make_game(task).with_suffix(".json").read_text())
    for game in (ours, theirs):
        game["KB"] = sorted(game["KB"]["logic"].splitlines())  # files read in the folder's order; and where they lie
        game["grammar"]["names_to_exclude"] = sorted(map(str, game["grammar"]["names_to_exclude"]))  # a set
    assert ours == theirs


@pytest.mark.parametrize(
    ("name", "split", "games"),
    [("w2-o3-q4", "test", 12), ("w2-o3-q2", "val", 4), ("w4-o6-q8", "test", 6), ("w8-o3-q4", "test", 4),
     ("w2-o12-q4", "test", 4), ("w8-o12-q4", "test", 4), ("tw-simple-dense", "train", 4)],
)  # fmt: skip
def test_the_oracle_wins_in_as_many_turns_as_it_said(name, split, games):
    for n in range(games):
        env, _, info = opened(name, split, n, turn_limit=12 if name.endswith(("q2", "q4")) else 24)  # the recipe's
        planned, turns, paid = len(info["plan"]), 0, 0.0
        while info["plan"]:
            _, reward, terminated, truncated, info = env.step(info["plan"][0])
            turns, paid = turns + 1, paid + reward
            assert info["signals"]["plan_left"] == planned - turns
        assert (info["won"], info["lost"], terminated, truncated) == (True, False, True, False)
        assert (turns, paid) == (planned, info["max_score"])
        env.close()


@pytest.mark.parametrize(
    ("n", "stuck", "way_on"),
    [(46, "take TextWorld style key from safe", "take TextWorld style key"),
     (59, "take type B key from chest", "take type B key")],
)  # fmt: skip
def test_in_two_of_the_hundred_harder_test_games_the_parser_asks_which_and_another_wording_goes_on(n, stuck, way_on):
    # "safe" beside "TextWorld style safe": the oracle's wording is ambiguous to the game's parser, in 2 of the 100
    # w4-o6-q8 test games, 5 of the 600 w2-o3-q4 training games, and none of the others that ship. They can be won.
    env, _, info = opened("w4-o6-q8", "test", n)
    while info["plan"][0] != stuck:
        info = env.step(info["plan"][0])[4]
    observation, _, _, _, asked = env.step(stuck)
    assert "Which do you mean" in observation
    assert asked["plan"] == info["plan"], "the question changed nothing"
    info = env.step(way_on)[4]
    while info["plan"]:
        info = env.step(info["plan"][0])[4]
    assert info["won"] is True


def test_losing_ends_the_game_and_is_not_winning():
    # catches: done taken for won. In tw-simple eating the food loses.
    env, _, info = opened("tw-simple-dense", "train")
    food = re.search(r"place the (.+?) on the stove|put the (.+?) on the stove", info["objective"])
    while info["plan"] and not info["plan"][0].startswith("put"):
        _, _, terminated, _, info = env.step(info["plan"][0])
    name = info["plan"][0].removeprefix("put ").removesuffix(" on stove")
    assert name in info["objective"], food
    _, reward, terminated, truncated, info = env.step(f"eat {name}")
    assert (info["won"], info["lost"], terminated, truncated) == (False, True, True, False)
    assert reward == 0
    assert info["signals"]["plan_left"] == -1


def test_the_turn_limit_truncates_and_neither_wins_nor_loses():
    env, _, info = opened("w2-o3-q4", turn_limit=2)
    assert env.step("look")[3] is False
    _, _, terminated, truncated, info = env.step("look")
    assert (terminated, truncated, info["won"], info["lost"]) == (False, True, False, False)


def test_observations_are_clean():
    for name, split in (("w2-o3-q4", "test"), ("w4-o6-q8", "test"), ("tw-simple-dense", "train")):
        env, observation, info = opened(name, split)
        seen = [observation]
        for command in ("look", "inventory", "dance", *info["plan"]):
            seen.append(env.step(command)[0])
        for text in seen:
            assert text.startswith("You are now in the "), text
            assert re.search(r"You are carrying[^.]*\.$", text), text
            assert not re.search(r"-=|=-|\$\$|^>|\n|\*\*\*|Would you like", text), text
            assert text.count("You are carrying") == 1, text
        assert info["objective"][:40] not in observation


def test_cleaning_by_hand():
    # catches: a banner kept, a repeated paragraph kept, the score line after the end kept, a room of a former turn
    description = "-= Attic =-\nYou are in an attic.\n\nThere is a shelf.\n"
    feedback = (
        "\n-= Attic =-\nYou are in an attic.\n\nThere is   a shelf.\nThere is a shelf.\n\nYou are carrying nothing.\n\n"
        "                    *** The End ***\n\nYou scored 1 out of a possible 1.\nWould you like to RESTART\n>"
    )
    text = "You are now in the attic. You are in an attic. There is a shelf. You are carrying nothing."
    assert clean(feedback, description, "You are carrying nothing.\n") == text
    assert clean("Taken.\n\n> -= Attic =-", description, "You are carrying: a key.") == (
        "You are now in the attic. Taken. You are carrying: a key."
    )


HOSTILE = [
    "x" * 10_000, "", "   ", "\x00", "go north. go south", "go north then go south", "take 'key'; look", 'say "hello"',
    "look\nlook", "undo", "restart", "RESTORE", "quit", "save", "tw-print facts", "tw-extra-infos score", "żółć",
    "open, close",
]  # fmt: skip


@pytest.mark.parametrize("command", HOSTILE, ids=range(len(HOSTILE)))
def test_a_trick_costs_its_turn_and_is_counted(command):
    env, before, _ = opened("w2-o3-q4")
    observation, reward, terminated, truncated, info = env.step(command)
    assert (reward, terminated, truncated, info["signals"]["invalid"]) == (0.0, False, False, 1.0)
    assert before.split(".")[0] == observation.split(".")[0], "it moved the player"
    plan = info["plan"]
    assert env.step(plan[0])[4]["signals"]["plan_left"] == len(plan) - 1, "the game goes on"


CHEATS = [
    "die", "again", "g", "take all", "take passkey and key", "purloin passkey", "gonear passkey", "tree",
    "abstract passkey to me", "showme", "actions", "full score", "replay", "recording on", "please undo", "-undo",
    "undo'", "test me", "random", "superbrief", "notify on", "Transcript",
]  # fmt: skip


def test_no_verb_of_the_interpreter_or_its_debugger_moves_the_game():
    # catches: a build with Inform's debugging verbs, where "purloin" takes what is locked away
    env, before, start = opened("w4-o6-q8", turn_limit=len(CHEATS) + 20)
    for command in CHEATS:
        observation, reward, terminated, truncated, info = env.step(command)
        assert (reward, terminated, truncated, info["plan"]) == (0.0, False, False, start["plan"]), command
        assert observation.split(".")[0] == before.split(".")[0], command
        assert observation.endswith(before[before.rindex("You are carrying") :]), command
        assert not re.search(r"\b[a-z]_\d\b", observation), (command, "the engine's own mark of an entity")


def test_what_counts_as_invalid_is_what_the_parser_says_and_no_admissible_command_is():
    # catches: a list of complaints that another version of the interpreter words otherwise
    env, _, info = opened("w4-o6-q8", turn_limit=60)
    for command in ("dance", "take moon", "go north go south", ""):
        assert env.step(command)[4]["signals"]["invalid"] == 1.0, command
    for command in info["admissible"]:
        env.reset(textworld_tasks("w4-o6-q8", "test", 1)[0])
        text, *_, after = env.step(command)
        assert after["signals"]["invalid"] == 0.0, (command, text)


def test_the_same_commands_give_the_same_text():
    def play():
        env, observation, info = opened("w4-o6-q8")
        return [observation, *(env.step(command)[0] for command in ["look", *info["plan"][:4], "inventory"])]

    assert play() == play()


def test_splits_share_no_seed_and_compared_models_share_no_game():
    seeds = [seed for split in SEEDS.values() for seed in split]
    assert len(seeds) == len(set(seeds))
    assert SEEDS["test"] == range(1, 101)


@pytest.mark.parametrize("name", ["w0-o3-q4", "w2-o3", "cake", "tw-simple-lumpy", "w2-o3-q4 "])
def test_an_unknown_configuration_is_refused_by_name(name):
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        Config.parse(name)


def test_asking_for_too_many_games_or_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="n=101"):
        textworld_tasks("w2-o3-q4", "test", 101)
    with pytest.raises(ValueError, match="'exam'"):
        textworld_tasks("w2-o3-q4", "exam")
    with pytest.raises(ValueError, match="turn_limit=0"):
        TextWorldEnv(turn_limit=0)


def test_a_pack_that_cannot_be_read_is_named(tmp_path):
    pack, whole = tmp_path / "broken.tar.xz", pack_path(textworld_tasks("w8-o3-q4", "test", 1)[0]).read_bytes()
    for content in (b"\xfd7zXZ\x00 no more", b"", b"not a pack at all", whole[: len(whole) // 3]):
        pack.write_bytes(content)
        with pytest.raises(ValueError, match=r"broken\.tar\.xz cannot be read"):
            unpack(pack, tmp_path / "games")
    # catches: half a game left behind; the interpreter ends the whole process when it reads one
    assert [path.name for path in (tmp_path / "games").iterdir()] == [".lock"]


def test_games_that_cannot_be_made_are_named_after_the_others_were_made():
    impossible = Task("textworld", "w0-o1-q1/1", 1, {"rooms": 0, "objects": 1, "quest_length": 1}, "test")
    possible = textworld_tasks("w1-o1-q1", "test", 1)[0]
    with pytest.raises(GameError, match=r"1 of \d games could not be made: .*w0-o1-q1/1"):
        prepare_games([impossible, possible], workers=1)
    assert game_path(possible).is_file()


def test_denser_games_pay_more_often():
    # the paper's steps per reward: 10.2, 2.9 and 1.2 (its Table 11)
    payments = {}
    for density in ("sparse", "balanced", "dense"):
        env, _, info = opened(f"tw-simple-{density}", "train")
        payments[density] = 0
        while info["plan"]:
            _, reward, _, _, info = env.step(info["plan"][0])
            payments[density] += reward > 0
    assert 1 == payments["sparse"] < payments["balanced"] < payments["dense"]
