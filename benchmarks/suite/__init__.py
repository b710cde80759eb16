"""The side-by-side benchmark suite: workloads, one worker per system, the report."""
