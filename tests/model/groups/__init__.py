"""The model of group sync: whose an offset at the target is, and what the flow may write over."""
