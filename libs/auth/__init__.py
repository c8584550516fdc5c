"""Who is asking: tokens are verified and minted here."""
