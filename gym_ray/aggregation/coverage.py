"""Where every planned rollout of a run is. Pure."""

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Coverage:
    """The two sides of `planned = results + failures + drained + omitted + owed`, in rollouts."""

    planned: int
    results: int
    failures: int
    drained: int
    omitted: int
    owed: int

    @property
    def accounted(self) -> int:
        """The right side of the equation."""
        return self.results + self.failures + self.drained + self.omitted + self.owed

    @property
    def closes(self) -> bool:
        """True if every planned rollout is in one place, and nothing else is."""
        return self.planned == self.accounted and min(astuple(self)) >= 0

    @property
    def is_complete(self) -> bool:
        """True if the equation closes and every rollout is settled: drained and omitted ones are for a resume."""
        return self.closes and self.results + self.failures == self.planned

    def check(self) -> None:
        """Accept only an equation that closes.

        Raises:
            ValueError: rollouts are missing or counted twice.
        """
        if not self.closes:
            raise ValueError(f"the account of the run does not close: {self} (right side: {self.accounted})")

    def __str__(self) -> str:
        sign = "=" if self.closes else "!="
        return (
            f"planned {self.planned} {sign} results {self.results} + failures {self.failures} + "
            f"drained {self.drained} + omitted {self.omitted} + owed {self.owed}"
        )
