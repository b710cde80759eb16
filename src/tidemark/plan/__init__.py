"""The physical plan of a job: vertices, where they run, what connects them."""
