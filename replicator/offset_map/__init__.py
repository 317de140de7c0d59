"""The exact offset map: which target offset the copy of a source record has. Pure: a format, and what follows from it.

Each block is meant to be committed in the transaction of the records that it describes. Nothing writes a map yet: here
are the format that later versions will write, and the rules by which they will read it. To be used by `lane`
(blocks), `jobs` (repair), `spark` and `inspect` (verdicts, translation).
"""
