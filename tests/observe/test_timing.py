"""A run with a time limit says how near its rollouts come to it."""

from gym_ray.observe.timing import RunTimingReport


def test_it_counts_what_was_cut_and_what_came_near() -> None:
    report = RunTimingReport(10.0)
    assert list(report.lines()) == ["time limit of a rollout: 10 s; 0 were cut by it; no result yet"]
    for latency in (1.0, 7.9, 8.0, 9.9):
        report.add(latency)
    report.add_timed_out()
    for load in ((3, 10), (5, 20), None):
        report.add_load(load)
    assert list(report.lines()) == [
        "time limit of a rollout: 10 s; 1 were cut by it; 1 of 4 results took more than 80% of it",
        "servers, 2 samples: waiting 4.0 on average and 5 at most, running 15.0 on average and 20 at most",
        "servers: 1 samples found none that says how busy it is",
    ]
