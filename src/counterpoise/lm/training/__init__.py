"""Training runs from one configuration file: settings, model, loop, checkpoints, estimates."""
