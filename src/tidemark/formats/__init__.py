"""How records look outside of a job: single messages, and whole files of them."""
