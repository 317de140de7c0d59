"""The model of several workers: who runs a lane, whose settings hold, and who finishes a change of the generation."""
