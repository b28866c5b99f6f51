"""How often at least one of k tries solves a task, in percent; for rewards that are all 0 or 1.

A task with fewer than k scored rollouts says nothing about k tries: it is left out, never counted as solved or failed.

Source: protocol §9.8.
"""

from collections.abc import Sequence
from itertools import groupby

from gym_ray import keys
from gym_ray.example.metrics import statistic
from gym_ray.example.metrics.rollout import MeasuredRollout


def pass_at_k(scored: Sequence[MeasuredRollout], num_repeats: int) -> dict[str, float]:
    """`pass@{k}/accuracy` and `pass@1[avg-of-{k}]/accuracy` for each k up to `num_repeats`.

    Empty if a reward is neither 0 nor 1. `scored` ascends by task and rollout: the first k of a task are its first.
    """
    tasks = [
        [reward for member in members if (reward := member.own.get(keys.REWARD)) is not None]
        for _, members in groupby(scored, key=lambda rollout: rollout.task)
    ]
    if any(reward not in (0, 1) for rewards in tasks for reward in rewards):
        return {}
    metrics: dict[str, float] = {}
    for k in range(1, num_repeats + 1):
        if measured := [rewards for rewards in tasks if len(rewards) >= k]:
            chances = [_unbiased_estimate(len(rewards), int(sum(rewards)), k) for rewards in measured]
            metrics[f"pass@{k}/accuracy"] = 100 * statistic.mean(chances)
            first_k = [statistic.mean(rewards[:k]) for rewards in measured]
            metrics[f"pass@1[avg-of-{k}]/accuracy"] = 100 * statistic.mean(first_k)
    return metrics


def _unbiased_estimate(tries: int, solved: int, k: int) -> float:
    """1 - C(tries - solved, k) / C(tries, k): the chance that k of the tries, picked at random, hold a solved one."""
    none_solved = 1.0
    for drawn in range(k):
        none_solved *= max(0, tries - solved - drawn) / (tries - drawn)
    return 1 - none_solved
