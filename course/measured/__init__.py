"""What a reader's own runs were made of, drawn in the form of the explorables."""
