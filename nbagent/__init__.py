"""A Jupyter notebook as an agent's session."""
__version__ = "0.1.0"
