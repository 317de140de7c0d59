"""Writes the generated pages of docs/reference from the code: `python -m cli.reference`."""
