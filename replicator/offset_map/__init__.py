"""The exact offset map: which target offset the copy of a source record has. Pure: a format, and what follows from it.

Each block is committed in the transaction of the records that it describes. Here are the format, which `lane` writes,
and the rules by which it is read: by `lane` at a start; later by `jobs` (repair), `spark` and `inspect` (verdicts,
translation).
"""
