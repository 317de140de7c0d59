"""Jobs for a distributed engine: bulk copies of history, and proof that both sides agree.

The only package that imports pyspark. The daemon never imports this package; commands do so when they are used.
"""
