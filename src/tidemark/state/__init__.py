"""What state *is*: descriptors, handles, time-to-live, key groups, backend and snapshot contracts."""
