"""What the magics return: values that show themselves as text, Markdown and HTML."""
