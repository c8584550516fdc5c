-- What a document's name comes to without DRAFT, FINAL and Copy (n): drafts and finals of one document share it.
ALTER TABLE documents ADD COLUMN name_stem text;
CREATE INDEX documents_stem ON documents (workspace_id, name_stem) WHERE state IN ('live', 'stale');
