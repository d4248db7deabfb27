"""Plan which activations to keep and which to compute again."""
