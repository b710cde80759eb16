"""How a job *runs*: plan, epoch loop, slots, sources and sinks, on Spark or in one process."""
