"""Reading the state of a running job from outside: servers in the slots, a proxy in the driver, a client."""
