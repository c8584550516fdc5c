"""The proposal service: owns proposals, their decisions, and what was spent on writing them."""
