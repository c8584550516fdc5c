"""What every service is made of: bus, database, outbox, inbox, health, logs, metrics. No business word in it."""
