"""Answers to the exercises of 00_tour: solution_x passes its check, wrong_x is what the check must reject."""


def solution_last_tokens(turn_ids):
    """Where a written token is followed by another turn, a told token or nothing."""
    after = [*turn_ids[1:], None]
    return [i for i, (turn, following) in enumerate(zip(turn_ids, after, strict=True)) if turn >= 0 and turn != following]


def wrong_last_tokens(turn_ids):
    """Misses a turn that the episode stops in."""
    pairs = zip(turn_ids, turn_ids[1:], strict=False)
    return [i for i, (turn, following) in enumerate(pairs) if turn >= 0 and turn != following]
