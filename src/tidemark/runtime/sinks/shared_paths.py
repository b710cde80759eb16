"""Says at submission which file sinks write where other users may rearrange things."""

from __future__ import annotations

import logging

from tidemark.api.graph import Graph
from tidemark.api.specs import FileSinkSpec
from tidemark.paths import absolute, is_local, local_path
from tidemark.private_files import who_else_may_replace

__all__ = ["warn_of_shared_outputs"]

_log = logging.getLogger(__name__)


def warn_of_shared_outputs(graph: Graph) -> None:
    """Warn of base paths on local disks in which, or on the way to which, others may rename or replace things.

    One line each, no refusal: output is often meant for others. What they own is refused when it is met.
    """
    for node in graph.nodes.values():
        if isinstance(node.spec, FileSinkSpec) and is_local(node.spec.sink.base_path):
            _warn(node.name, local_path(absolute(node.spec.sink.base_path)))


def _warn(sink: str, base: str) -> None:
    try:
        found = who_else_may_replace(base)
    except OSError:
        # Any trouble on the way shows when the sink is claimed.
        return
    if found is None:
        return
    place, who = found
    _log.warning(
        "%s of the file sink '%s' may be changed by %s. They can take staged files away, so that the job fails, and "
        "put older ones in their place. Use directories that belong to you or root, without write permission for "
        "others or at least with the sticky bit (chmod +t).",
        f"The base path {place}" if place == base else f"{place}, on the way to the base path {base}",
        sink,
        who,
    )
