"""Labs that stand until they are taken down: a process holds each, and its faults change while it stands."""
