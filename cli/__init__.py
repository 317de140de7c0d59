"""The command line of eos-replicate."""

try:
    from cli._version import __version__
except ModuleNotFoundError:  # a source tree that was never built or installed
    __version__ = "0.0.0"

__all__ = ["__version__"]
"""The version of the newest tag when this was built; of a source tree: when that was last installed (`make env`)."""
