"""A regular package, so that no `tests` that a dependency leaves in site-packages comes before it."""
