"""The shipped rows are what the generator writes, and what the environments take."""

from pathlib import Path

import orjson
import pytest

from gym_ray.errors import InputError
from gym_ray.example.arithmetic import ArithmeticTask
from gym_ray.example.calculator_tools import CALCULATOR_TOOLS, CalculatorTask
from gym_ray.example.generation import row_lines, write_rows
from gym_ray.example.rows import ROW_FILES, example_rows


@pytest.mark.parametrize("name", ROW_FILES)
def test_the_shipped_rows_are_what_the_generator_writes(name: str, tmp_path: Path) -> None:
    write_rows(tmp_path)
    assert (tmp_path / f"{name}.jsonl").read_bytes() == example_rows(name).read_bytes() == b"".join(row_lines(name))


@pytest.mark.parametrize("name", ROW_FILES)
def test_there_are_enough_rows_and_no_two_are_alike(name: str) -> None:
    lines = example_rows(name).read_bytes().splitlines()
    assert len(set(lines)) == len(lines) >= 200
    prompts = {orjson.dumps(row.get("task_input", row)["responses_create_params"]) for row in map(orjson.loads, lines)}
    assert len(prompts) == len(lines)


def test_flat_rows_name_their_agent_source_and_answer() -> None:
    for row in map(orjson.loads, row_lines("arithmetic")):
        assert row["agent_ref"]["name"] == "arithmetic_agent"
        assert row["task_source"] == "arithmetic"
        assert row["responses_create_params"]["input"][-1]["role"] == "user"
        ArithmeticTask.model_validate(row)


def test_materialized_rows_name_their_taskset() -> None:
    for row in map(orjson.loads, row_lines("calculator_tools")):
        assert row["task_id"]["taskset"] == CALCULATOR_TOOLS.taskset
        assert set(row) == {"task_id", "task_input"}
        CalculatorTask.model_validate(row["task_input"]["task_data"])


def test_rows_of_an_unknown_environment_are_refused() -> None:
    with pytest.raises(InputError, match="expected one of arithmetic, calculator_tools, found 'chess'"):
        example_rows("chess")
