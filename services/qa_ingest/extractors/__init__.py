"""Ways to find questions and answers in files, one module each."""
