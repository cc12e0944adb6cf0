"""Memory: Markdown notes are the truth, an index of words and vectors finds the line."""
