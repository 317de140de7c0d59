"""Side by side with MirrorMaker 2 on real Kafka: `make bench`. Results go to benchmarks/results as JSON."""
