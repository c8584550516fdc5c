"""HTTP itself: who may ask, what a body is, how a failure looks, how owners are asked."""
