"""The `records` plane: every record is decoded and produced again, by librdkafka on both sides."""
