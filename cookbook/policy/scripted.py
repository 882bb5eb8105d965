"""ScriptedBackend: a policy that says what it is told to, for tests and for looking at an environment.

In:  a chat, commands a conversation.     Out: what a model would have written, with log-probability 0.
"""

from cookbook.chat import Chat


class ScriptedBackend:
    """Conversation i says commands[i][0], commands[i][1], ...; when they run out, it says "look".

    `ended`: whether turns carry the end-of-turn token, as a model that finished its turn writes it.
    """

    def __init__(self, chat: Chat, commands: list[list[str]], ended: bool = True):
        self.chat, self.commands, self.ended = chat, commands, ended
        self.told: list[list[list[int]]] = []
        """every chunk that was handed over, turn by turn"""

    def start(self, rows: int) -> None:
        """All conversations from their first command."""
        self._rows = [iter(commands) for commands in self.commands[:rows]]

    def keep(self, rows: list[int]) -> None:
        """Only these go on."""
        self._rows = [self._rows[row] for row in rows]

    def write(self, chunks, uniforms, caps):
        """The next command of each."""
        self.told.append(chunks)
        written = [self.chat.command_ids(next(row, "look")) for row in self._rows]
        written = [(ids if self.ended else ids[:-1])[:cap] for ids, cap in zip(written, caps, strict=True)]
        return [(ids, [0.0] * len(ids)) for ids in written]
