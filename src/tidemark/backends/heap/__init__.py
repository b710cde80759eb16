"""The heap backend: keyed state as Python objects in the worker's memory."""

from tidemark.backends.heap.backend import HeapKeyedStateBackend

__all__ = ["HeapKeyedStateBackend"]
