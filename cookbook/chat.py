"""Chat: a conversation -> token ids, appended turn by turn, never rendered twice.

In:  a tokenizer with a chat template; the first message, then one observation a turn.     Out: token ids.
Leaves out: templates that rewrite earlier turns (they strip thinking, say): refused at start-up.
Taught in: notebooks/00_tour.ipynb
"""

from jinja2.exceptions import TemplateError

ROLES = {
    "textworld": ("You are an expert TextWorld player. Give the best next action.", "open chest"),
    "default": ("You solve tasks turn by turn. Give the best next action.", "look"),
}
MARK = "\u2063COMMAND\u2063"  # stands for a command while the text around it is found


def first_message(env: str, objective: str, observation: str) -> str:
    """The paper's prompt shape: role, format, objective, interaction so far, state. No admissible commands."""
    role, example = ROLES.get(env, ROLES["default"])
    return (
        f"{role}\nAnswer with one action that starts with a verb, such as: {example}\n"
        f"# Objective\n{objective}\n# Interaction\n{next_message(observation)}"
    )


def next_message(observation: str) -> str:
    """What the agent is told after each command."""
    return f"current state: {observation}\nyour action:"


class Chat:
    """Renders only what is new. Prompt and chunks joined are exactly what the tokenizer's template would render.

    Raises ValueError when the tokenizer has no template, or one that does not keep its prefix.
    """

    def __init__(self, tokenizer, env: str = "textworld"):
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(
                "the tokenizer has no chat template: use an instruct model, or set tokenizer.chat_template"
            )
        self.tokenizer, self.env = tokenizer, env
        self._check_prefix()
        end_text, between = self._around_command()
        self.end_id = self._encode(end_text)[0]
        """the end-of-turn token: the last token of every turn that the policy finished itself"""
        self._before_observation, self._after_observation = between

    def prompt(self, objective: str, observation: str) -> list[int]:
        """The conversation up to where the policy writes its first command."""
        content = first_message(self.env, objective, observation)
        return self._encode(self._render([{"role": "user", "content": content}], generate=True))

    def chunk(self, observation: str, ended: bool) -> list[int]:
        """What comes after a command: the rest of the template and the observation, up to the next command.

        ended: whether the policy wrote the end-of-turn token itself; if not, it comes first here, untrained.
        """
        text = self._before_observation + next_message(observation) + self._after_observation
        return ([] if ended else [self.end_id]) + self._encode(text)

    def command_ids(self, command: str) -> list[int]:
        """A command as the policy would have written it, end-of-turn token included; for demonstrations."""
        return [*self._encode(command), self.end_id]

    def command_text(self, ids: list[int]) -> str:
        """The command that the policy's tokens spell."""
        return self.tokenizer.decode([i for i in ids if i != self.end_id], skip_special_tokens=True).strip()

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _render(self, messages: list[dict], generate: bool) -> str:
        try:
            return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses a user/assistant conversation: {error}") from error

    def _check_prefix(self) -> None:
        messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}] * 2
        whole = self._render(messages, generate=False)
        earlier = [self._render(messages[:n], generate=n % 2 == 1) for n in (1, 2, 3)]
        if not all(whole.startswith(part) for part in earlier):
            raise ValueError(
                "the chat template does not keep its prefix: earlier turns change when a new one is added."
                " Either set tokenizer.chat_template to one that appends only (for Qwen3: without the thinking"
                " part), or choose a model whose template does"
            )

    def _around_command(self) -> tuple[str, tuple[str, str]]:
        """Text that ends a command, and the text before and after the next observation."""
        said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": MARK}]
        seen = [*said, {"role": "user", "content": MARK}]
        _, after, generation = self._render(seen, generate=True).split(MARK)
        ids = self._encode(after)
        end_text = self.tokenizer.convert_ids_to_tokens(ids[0])
        if not after.startswith(end_text):
            raise ValueError(f"the chat template ends a turn with {after!r}, which is not one special token first")
        return end_text, (after[len(end_text) :], generation)
