"""Kafka's record batches (format v2), as they stand in logs, Produce requests and Fetch responses.

    +--------- batch header, 61 bytes ---------+------------- body -------------+
    | base offset | length | epoch | magic | CRC | attributes … | record | record | …

The body is compressed as a whole (`compression`). Pure: no sockets, no files, no event loop. Used by the embedded
broker, which stores batches, and by the replicator, which reads them; it imports neither.
"""
