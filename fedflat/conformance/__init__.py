"""Whether a method does what the engine expects of it: checks in a small federation, with readable findings."""
