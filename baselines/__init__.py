"""Published autoscalers as policies, with their real defaults."""
