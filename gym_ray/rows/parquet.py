"""Parquet files as rows of JSON text. Source of the rule for nulls: `arrow_values`."""

from collections.abc import Iterator

import orjson

from gym_ray.errors import InputError
from gym_ray.rows.finding import InputFile
from gym_ray.rows.opening import file_errors
from gym_ray.rows.source_row import SourceRow

BATCH_ROWS = 256
"""Decoded at once: with rows of megabytes this is the memory that counts, with small ones the cost of a batch."""


def read_parquet(file: InputFile, position: int = 0) -> Iterator[SourceRow]:
    """The rows of a file, numbered from 0.

    Raises:
        InputError: it cannot be read, or a column has no JSON form.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415  # half a second and 60 MB, for those who need it

    from gym_ray.rows.arrow_values import row_converter  # noqa: PLC0415  # imports pyarrow

    with file_errors(file):
        table = pq.ParquetFile(file.path, filesystem=file.filesystem, pre_buffer=False)
    with table:
        convert = row_converter(table.schema_arrow, file.name)
        batches = table.iter_batches(BATCH_ROWS)
        number = 0
        while True:
            with file_errors(file):
                batch = next(batches, None)
                if batch is None:
                    return
                values = batch.to_pylist()
            for value in values:
                try:
                    line = orjson.dumps(convert(value))
                except TypeError as error:
                    raise InputError(f"{file.name}[{number}]: cannot be written as JSON: {error}") from None
                yield SourceRow(line, file.name, number, position + number, is_line=False)
                number += 1
