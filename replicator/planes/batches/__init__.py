"""The sans-I/O core of a plane that passes record batches on as they are. Nothing uses it yet."""
