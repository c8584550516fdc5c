"""What can go wrong while an installation is prepared, said so that the reader knows what to do next."""

from __future__ import annotations

from libs.hinted import HintedError


class ProvisioningError(HintedError):
    """Something cannot be prepared: `message` says what is wrong, `hint` what would be right."""


class TopologyError(ProvisioningError):
    """The bus cannot be brought to the state of the table."""


class NoJetStream(TopologyError):
    """The server runs without JetStream, or has switched it off since it cannot write."""


class SettingsError(ProvisioningError):
    """A setting of the installation is not right."""
