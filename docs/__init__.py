"""The documentation. A package only so that its checks can be found."""
