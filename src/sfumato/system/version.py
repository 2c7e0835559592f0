"""The version of the package, in a module that every other module can import."""

__all__ = ["__version__"]

__version__ = "0.1.0"
