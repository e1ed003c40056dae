"""The book's machinery, in a checkout alone: experiments and their records, and the coursework's grader."""
