"""Which outcomes of asynchronous calls are tried again."""

from __future__ import annotations

from tidemark.api.functions.async_retry import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = [
    "empty_result_predicate",
    "exception_type_predicate",
    "has_exception_predicate",
]
