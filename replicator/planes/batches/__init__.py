"""The sans-I/O core of the plane that passes record batches on as they are; `planes.batches_io` connects it."""
