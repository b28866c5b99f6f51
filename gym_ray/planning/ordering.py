"""In which order the rollouts of a plan start. Pure.

Rollouts are named by their position in the plan as it was expanded: row by row, target by target, repeat by repeat.
Flat arrays, because a plan has millions of them. Source: protocol §5.2 (6), §6.4.
"""

from array import array
from collections.abc import Iterable, Sequence


def round_by_round(rounds: Sequence[int]) -> "array[int]":
    """Positions sorted by their rollout index, stably: rollout 0 of every task before rollout 1 of any."""
    groups = _by_key(range(len(rounds)), rounds)
    order = array("Q")
    for key in sorted(groups):
        order.extend(groups.pop(key))
    return order


def taking_turns(order: Iterable[int], names: Sequence[int]) -> "array[int]":
    """Positions of `order` with a turn for each name: the first of every name, then the second of every name, and so
    on. Names come in the order of their first appearance, and each keeps its own order; a name without more drops out.

    `names` is by position.
    """
    queues = list(_by_key(order, names).values())
    turns = array("Q")
    turn = 0
    while queues:
        for queue in queues:
            turns.append(queue[turn])
        turn += 1
        queues = [queue for queue in queues if len(queue) > turn]
    return turns


def _by_key(order: Iterable[int], keys: Sequence[int]) -> "dict[int, array[int]]":
    groups: dict[int, array[int]] = {}
    for position in order:
        key = keys[position]
        group = groups.get(key)
        if group is None:
            group = groups[key] = array("Q")
        group.append(position)
    return groups
