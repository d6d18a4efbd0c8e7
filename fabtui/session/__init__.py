"""Planning and running sweeps, turning node messages into events, keeping the journal, replaying it."""
