"""What is looked for: by `Experiment`s that apply to a subject, and in the lines that ran."""
