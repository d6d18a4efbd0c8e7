"""The model of a fabric: endpoints, layers, verdicts, schedule, snapshot. Pure: no I/O, no asyncio, no Textual."""
