"""The batches plane over real connections: sends what its core in `planes.batches` asks for, and takes the answers."""
