"""The node side of fabtui: everything that runs on a node.

Standard library only (plus ``pynvml``, shipped along), Python 3.8+. Nothing here imports ``fabtui``.
"""
