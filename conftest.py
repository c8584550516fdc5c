"""Fixtures for the whole repository: real servers, one database a test; properties without a clock."""

from hypothesis import settings

# A loaded machine must not make a property fail.
settings.register_profile("burnish", deadline=None)
settings.load_profile("burnish")

pytest_plugins = ["libs.service_kit.testing.plugin"]
