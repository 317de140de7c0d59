"""State machines of the broker: no I/O, no clock, no event loop. Events in, new state and effects out."""
