"""Where a consumer of one side of a flow goes on at the other side, by the flow's offset map."""
