"""How state looks in files: canonical Parquet tables, and native files of a backend."""

from __future__ import annotations

from tidemark.checkpoint.format.native import NativeFiles, fetch_native, verify_native
from tidemark.checkpoint.format.read import read_table, verify_table
from tidemark.checkpoint.format.write import TableWriter, write_table

__all__ = [
    "NativeFiles",
    "TableWriter",
    "fetch_native",
    "read_table",
    "verify_native",
    "verify_table",
    "write_table",
]
