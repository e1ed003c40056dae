"""What the papers print, what is recorded, and the comparison of the two."""
