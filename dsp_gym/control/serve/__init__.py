"""What a live loop shows while it runs: status, metrics, a page, and decisions on request."""
