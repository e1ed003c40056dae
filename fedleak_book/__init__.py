"""What makes the book, in a checkout alone: experiments and their records, and the coursework's grader."""
