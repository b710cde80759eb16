"""Operators on whole batches of streams without keys: map and filter by column, fused in a task.

A function gets a record batch. Instead of one there may be expressions of `pyarrow.compute`, which Arrow evaluates
without a line of Python per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import SerializationError
from tidemark.operators.base import Output
from tidemark.operators.function_operator import FunctionOperator
from tidemark.operators.record_batches import BatchShape
from tidemark.protocol.batch import Batch, ColumnBatch

if TYPE_CHECKING:
    from tidemark.types.typeinfo import TypeInformation

__all__ = ["FilterBatchOperator", "MapBatchOperator"]


class _BatchOperator(FunctionOperator):
    """Columns in, columns out."""

    columnar = True

    def __init__(self, input_type: TypeInformation) -> None:
        super().__init__()
        self._input = BatchShape(input_type)

    def process(self, input_index: int, batch: Batch, out: Output) -> None:
        """Process records that came as objects."""
        self.process_columns(input_index, self._input.batch(batch, None), out)


class MapBatchOperator(_BatchOperator):
    """Rows for rows."""

    def __init__(self, function: Any, input_type: TypeInformation, output_type: TypeInformation) -> None:
        """Wrap a callable, or expressions by the name of the column they make."""
        super().__init__(input_type)
        self._output = BatchShape(output_type)
        self._call = _projection(function) if isinstance(function, Mapping) else function

    def process_columns(self, input_index: int, columns: ColumnBatch, out: Output) -> None:
        """Emit what the function makes of the rows; as many rows as came keep their timestamps."""
        if not len(columns):
            return
        result = self._call(self._input.record_batch(columns.values))
        if result is None:
            return
        made = self._output.columns(result, None)
        if columns.timestamps is not None and len(made) == len(columns):
            made.timestamps = columns.timestamps
        out.emit_columns(made)


class FilterBatchOperator(_BatchOperator):
    """Some of the rows."""

    def __init__(self, function: Any, input_type: TypeInformation) -> None:
        """Wrap a callable that gives a mask, or an expression that is one."""
        super().__init__(input_type)
        self._call = function
        if isinstance(function, pc.Expression):
            project = _projection({"keep": function})
            self._call = lambda batch: project(batch)["keep"]

    def process_columns(self, input_index: int, columns: ColumnBatch, out: Output) -> None:
        """Emit the rows for which the mask is true."""
        if not len(columns):
            return
        mask = _mask(self._call(self._input.record_batch(columns.values)), len(columns))
        stamps = columns.timestamps
        out.emit_columns(
            ColumnBatch(
                columns.values.filter(mask),
                columns.serializer,
                None if stamps is None else stamps.filter(mask),
            )
        )


def _projection(expressions: Mapping[str, pc.Expression]) -> Callable[[pa.RecordBatch], pa.Table]:
    """A function that evaluates expressions on a batch."""
    # Loads pandas where that is installed, so only jobs that need it pay for it.
    import pyarrow.acero as acero

    options = acero.ProjectNodeOptions(list(expressions.values()), list(expressions))

    def project(batch: pa.RecordBatch) -> pa.Table:
        source = acero.Declaration(
            "table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
        )
        # One thread, for the order of the rows.
        return acero.Declaration.from_sequence([source, acero.Declaration("project", options)]).to_table(
            use_threads=False
        )

    return project


def _mask(answer: Any, length: int) -> pa.Array:
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if isinstance(answer, np.ndarray):
        answer = pa.array(answer)
    if not isinstance(answer, pa.Array) or answer.type != pa.bool_() or len(answer) != length:
        raise SerializationError(
            f"The function of filter_batch() must return a boolean array with a value for each of the {length} rows, "
            f"not {answer.type if isinstance(answer, pa.Array) else type(answer).__name__}."
        )
    return answer
