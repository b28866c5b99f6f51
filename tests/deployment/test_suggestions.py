from gym_ray.deployment.suggestions import did_you_mean


def test_the_nearest_name_is_suggested() -> None:
    assert did_you_mean("maze_agnet", ["maze_agent", "chess_agent"]) == "did you mean 'maze_agent'?"


def test_without_a_near_name_the_known_ones_are_listed() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "there are 'a', 'b'"


def test_a_long_list_is_cut() -> None:
    assert did_you_mean("zzz", [f"agent_{i}" for i in range(20)]).endswith("and 12 more")


def test_without_any_name_there_is_none() -> None:
    assert did_you_mean("zzz", []) == "there is none"
