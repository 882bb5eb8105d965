"""What was rolled out is what is trained: the appended pieces are what the template would render."""

import pytest
from conftest import byte_tokenizer

from cookbook.chat import Chat, first_message, next_message

STRIPS_HISTORY = (  # as thinking templates do: an earlier answer loses its first word
    "{% for m in messages %}{% if m['role'] == 'assistant' %}<|im_start|>assistant\n"
    "{% if not loop.last %}{{ m['content'][1:] }}{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n"
    "{% else %}<|im_start|>user\n{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("which", ["tokenizer", "chatml_tokenizer"])
def test_pieces_joined_are_the_whole_conversation(which, request):
    # catches: the newline after the end token given to the policy, a system line rendered twice, a lost header
    tokenizer = request.getfixturevalue(which)
    chat = Chat(tokenizer)
    ids = (
        chat.prompt("win", "a room")
        + chat.command_ids("go north")
        + chat.chunk("a key", ended=True)
        + chat.command_ids("take key")
    )
    messages = [
        {"role": "user", "content": first_message("textworld", "win", "a room")},
        {"role": "assistant", "content": "go north"},
        {"role": "user", "content": next_message("a key")},
        {"role": "assistant", "content": "take key"},
    ]
    whole = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"]
    assert whole[: len(ids)] == ids
    assert tokenizer.decode(whole[len(ids) :]).strip() == ""


def test_a_turn_that_did_not_end_itself_is_ended_for_it(chatml_tokenizer):
    chat = Chat(chatml_tokenizer)
    assert chat.chunk("x", ended=False) == [chat.end_id, *chat.chunk("x", ended=True)]
    assert chatml_tokenizer.decode([chat.end_id]) == "<|im_end|>"


def test_a_template_that_rewrites_history_is_refused_with_both_ways_out(request):
    tokenizer = byte_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], STRIPS_HISTORY, "<|endoftext|>")
    with pytest.raises(ValueError, match=r"prefix.*Either.*or choose"):
        Chat(tokenizer)


def test_a_tokenizer_without_template_is_refused(request):
    tokenizer = byte_tokenizer(["<|endoftext|>"], None, "<|endoftext|>")
    with pytest.raises(ValueError, match="no chat template"):
        Chat(tokenizer)


def test_the_prompt_names_no_admissible_command_and_ends_where_the_policy_writes(tokenizer):
    chat = Chat(tokenizer)
    text = tokenizer.decode(chat.prompt("Go north, then take the key.", "You are now in the hall."))
    assert text.endswith("your action:<|assistant|>")
    assert "admissible" not in text.lower()
    assert text.index("Go north, then take the key.") < text.index("current state: You are now in the hall.")


@pytest.mark.parametrize(
    "command", ["go north", "take type A key from the Henderson's style safe", "żółć 'quoted' \"twice\"", "a\nb"]
)
def test_commands_survive_encoding(tokenizer, command):
    chat = Chat(tokenizer)
    assert chat.command_text(chat.command_ids(command)) == command
