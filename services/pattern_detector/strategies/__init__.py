"""The strategies that find patterns, and how their results become one list. Pure functions over signals."""
