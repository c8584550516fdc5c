"""The Q&A library: documents, and the questions and answers found in them."""
