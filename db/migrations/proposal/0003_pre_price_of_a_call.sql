-- What a call can cost at most, by its model's price list; null where none is known. Until a call is settled the budget
-- counts this.
ALTER TABLE model_calls ADD COLUMN most_usd numeric CHECK (most_usd >= 0);
