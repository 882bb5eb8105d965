"""cookbook: multi-turn agentic reinforcement learning, from text games to a better policy.

The way of the data, one module an arrow; a module knows what comes before it and nothing after it:

    tasks      Task, TaskSet: frozen rows that rebuild a starting state anywhere
    envs       Env over strings (TextWorld, probes) and a pool that plays many side by side
    chat       a conversation -> token ids, appended turn by turn
    episode    Episode: the record that flows through everything
    policy     model + tokenizer + adapters: sample, score, value
    rollout    tasks + policy -> episodes; demos: the same, played by the oracle
    rewards    episode -> one reward a turn
    credit     turn rewards -> one advantage a token
    loss       advantages -> a number to go down
    settings   one RL run as a frozen, checked config
    sft        demonstrations -> a warm start
    train      the RL loop, and its checkpoint
    evaluate   success on held-out games, with intervals
    report     metrics, curves, figures
    recipe     a whole run as one frozen config; run_recipe: the command

Beside the way: tiny (makes the tiny base model), nbtools (runs and checks the notebooks), paths.
This file and `envs` stay free of torch: environment workers are forked from a process that never imported it.
"""

__version__ = "0.1.0"
