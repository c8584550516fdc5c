-- A document with a sensitive pair has sensitive chunks: whoever may not read the one finds none of the others.
ALTER TABLE chunks ADD COLUMN sensitive boolean NOT NULL DEFAULT false;
