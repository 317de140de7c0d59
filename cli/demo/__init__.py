"""The demo: two brokers, a replicator, everything killed on the way, and a comparison that trusts none of them."""
