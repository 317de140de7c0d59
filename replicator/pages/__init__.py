"""What pages for people share: how they are made, and how they look."""
