"""What a daemon shows of itself while it runs: metrics, health."""
