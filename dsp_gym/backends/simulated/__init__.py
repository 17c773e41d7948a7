"""Jobs of the model, whose time the loop drives."""
