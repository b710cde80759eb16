"""Functions: all of `tidemark.api.functions`, and the contexts of sources and sinks."""

from __future__ import annotations

from tidemark.api import functions
from tidemark.api.context import SinkContext, SourceContext, TimerService
from tidemark.api.functions import *  # noqa: F403 - this module is that one under PyFlink's name

__all__ = ["SinkContext", "SourceContext", "TimerService"]
__all__ += functions.__all__
