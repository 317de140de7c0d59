"""The command line of eos-replicate."""

__version__ = "0.1.0"
"""The version of the distribution; pyproject.toml takes it from here."""
