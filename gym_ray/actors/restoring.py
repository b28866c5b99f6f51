"""What a continued run begins with: which rollouts have ended, which are owed, and in which order they start."""

from fnmatch import fnmatchcase

from gym_ray.actors.plan import Plan
from gym_ray.actors.spec import ANY_FAILURE, MISSING, Resume
from gym_ray.dispatch.ledger import Ledger, State
from gym_ray.observe.tally import Tally
from gym_ray.outcomes.outcome import OutcomeKind
from gym_ray.recording.history import History


def restore(
    history: History, resume: Resume, max_attempts: int, plan: Plan, ledger: Ledger, tally: Tally, names: list[str]
) -> None:
    """Settle in ledger and tally what has ended, and set aside what is not to be run.

    `names` are the environment servers by position.
    """
    for number in range(len(history)):
        ledger.use_attempts(number, history.next_attempt(number))
        server = names[plan.server(number)]
        if history.has_result(number):
            ledger.settle(number, State.RESULT)
            tally.restored(server, OutcomeKind.RESULT, reward=history.reward(number), masked=history.is_masked(number))
            continue
        is_final = history.is_final(number, max_attempts)
        if _is_wanted(history, number, is_final=is_final, only=resume.only):
            continue
        if history.has_failure(number):
            ledger.settle(number, State.FAILURE)
            tally.restored(server, OutcomeKind.FAILURE, failure_class=history.failure_class(number), terminal=is_final)
        else:
            ledger.set_aside(number)
    if resume.longest_first:
        known = [number for number in range(len(history)) if history.duration_s(number) > 0]
        ledger.lease_first(sorted(known, key=history.duration_s, reverse=True))


def _is_wanted(history: History, number: int, *, is_final: bool, only: tuple[str, ...] | None) -> bool:
    if only is None:
        return not is_final
    if not history.has_failure(number):
        return MISSING in only
    failure_class = history.failure_class(number)
    return any(
        each == ANY_FAILURE
        or (each.startswith(f"{ANY_FAILURE}:") and fnmatchcase(failure_class, each.removeprefix(f"{ANY_FAILURE}:")))
        for each in only
    )
