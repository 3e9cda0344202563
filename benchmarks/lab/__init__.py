"""How exact the lab's instruments are: the mock against the clock, load generators against it."""
