"""Until when rollouts may start: a time budget with a margin for those that would not end in time, and a token budget.

Pure: time is an argument, in seconds of one monotonic clock. Source: protocol §6.5.
"""

from bisect import insort

from gym_ray.dispatch.latency import quantile

MIN_SAMPLES = 5
"""Durations before this many say too little for a margin of their own."""
QUANTILE = 0.75


class DispatchBudget:
    """Decides whether a rollout may still start.

    Args:
        budget_s: seconds from `started_at` in which rollouts may start; 0 is a budget that is spent; None has no end.
        margin_s: nothing starts in the last seconds of the budget; None learns them as the 75th percentile of the
            durations of results, once five are known.
        token_budget: nothing starts once the usage that replies report has reached it; None has no end.
    """

    def __init__(
        self, budget_s: float | None, margin_s: float | None, token_budget: int | None, started_at: float
    ) -> None:
        self._deadline_at = None if budget_s is None else started_at + budget_s
        self._margin_s = margin_s
        self._token_budget = token_budget
        self._durations: list[float] = []
        self.tokens = 0
        self.without_usage = 0
        """Results that reported no usage; the token budget cannot see what they cost."""

    @property
    def is_limited(self) -> bool:
        """True if there is an end at all."""
        return self._deadline_at is not None or self._token_budget is not None

    @property
    def counts_tokens(self) -> bool:
        return self._token_budget is not None

    @property
    def margin_s(self) -> float | None:
        """The margin that counts now."""
        if self._margin_s is not None:
            return self._margin_s
        if len(self._durations) < MIN_SAMPLES:
            return None
        return quantile(self._durations, QUANTILE)

    def took(self, duration_s: float, tokens: int | None) -> None:
        """Note a result."""
        if self._deadline_at is not None and duration_s > 0:
            insort(self._durations, duration_s)
        if self._token_budget is not None:
            self.tokens += tokens or 0
            self.without_usage += tokens is None

    def out_of_time(self, now: float) -> str | None:
        """Why nothing may start any more for want of time, or None."""
        if self._deadline_at is None:
            return None
        remaining, margin = self._deadline_at - now, self.margin_s
        if remaining <= 0:
            return "the dispatch budget is spent"
        if margin is not None and remaining < margin:
            return f"{remaining:.1f} s of the dispatch budget remain, less than the drain margin of {margin:.1f} s"
        return None

    @property
    def out_of_tokens(self) -> str | None:
        """Why nothing may start any more for want of tokens, or None."""
        if self._token_budget is None or self.tokens < self._token_budget:
            return None
        unseen = f", besides {self.without_usage} replies that report no usage" if self.without_usage else ""
        return (
            f"{self.tokens} tokens were used{unseen}, the token budget is {self._token_budget}; "
            "rollouts in flight at that moment may add theirs"
        )
