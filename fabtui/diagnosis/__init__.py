"""From the model to findings: named causes with their evidence and the next command."""
