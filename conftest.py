"""Fixtures for the whole repository: real servers, one database a test."""

pytest_plugins = ["libs.service_kit.testing.plugin"]
