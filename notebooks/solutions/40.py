"""Answers to the exercises of 40_recipe: solution_x passes its check, wrong_x is what the check must reject."""


def solution_steps_per_reward(rewards):
    """Commands divided by paid commands."""
    return len(rewards) / max(1, sum(reward != 0 for reward in rewards))


def wrong_steps_per_reward(rewards):
    """Takes a penalty for no payment, and divides by zero."""
    return len(rewards) / sum(reward > 0 for reward in rewards)
