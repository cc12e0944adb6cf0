"""What is typed after a magic; `magics` finds the command here."""
