-- The tables of "the platform": the application whose AI features Burnish improves.
-- Burnish's scanners only read them. Safe to run again: it creates what is not there and changes nothing else.

CREATE SCHEMA IF NOT EXISTS platform;

-- What the relevance scorer and the intent classifier answered: one row per scored text.
CREATE TABLE IF NOT EXISTS platform.feed_articles (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id     uuid,
    body             text NOT NULL,
    label            text,
    label_confidence numeric CHECK (label_confidence BETWEEN 0 AND 1),
    version_ref      text,
    created_at       timestamptz NOT NULL DEFAULT now()
);

-- A user's objection to one answer. `expected` is the label that the user would have given, where one was named.
CREATE TABLE IF NOT EXISTS platform.feed_flags (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    article_id   uuid NOT NULL REFERENCES platform.feed_articles (id) ON DELETE CASCADE,
    workspace_id uuid,
    flagged_by   text NOT NULL,
    category     text NOT NULL CHECK (category IN ('wrong_label', 'not_relevant', 'other')),
    reason       text NOT NULL,
    expected     text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    resolved_at  timestamptz
);

-- Classified content with its confidence and its place in the review workflow.
CREATE TABLE IF NOT EXISTS platform.content_items (
    id                        uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id              uuid,
    content_type              text NOT NULL,
    body                      text NOT NULL,
    classification            text,
    classification_confidence numeric CHECK (classification_confidence BETWEEN 0 AND 1),
    governance_review_status  text CHECK (
        governance_review_status IN ('pending', 'approved', 'reverted', 'changes_requested', 'draft')
    ),
    version_ref               text,
    created_by                text,
    created_at                timestamptz NOT NULL DEFAULT now(),
    updated_at                timestamptz NOT NULL DEFAULT now()
);

-- What an AI feature drafted, and what a person made of it.
CREATE TABLE IF NOT EXISTS platform.ai_drafts (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    touchpoint   text NOT NULL,
    workspace_id uuid,
    draft        text NOT NULL,
    final        text,
    edited_by    text,
    edited_at    timestamptz
);

-- Scanners read in pages ordered by (time of change, id) from where they stopped; the partial indexes hold only
-- the rows that can become signals.
CREATE INDEX IF NOT EXISTS feed_articles_created_at_id_idx
    ON platform.feed_articles (created_at, id);
CREATE INDEX IF NOT EXISTS feed_flags_updated_at_id_idx
    ON platform.feed_flags (updated_at, id);
CREATE INDEX IF NOT EXISTS feed_flags_unresolved_idx
    ON platform.feed_flags (updated_at, id) WHERE resolved_at IS NULL;
CREATE INDEX IF NOT EXISTS feed_flags_article_id_idx
    ON platform.feed_flags (article_id);
CREATE INDEX IF NOT EXISTS content_items_updated_at_id_idx
    ON platform.content_items (updated_at, id);
CREATE INDEX IF NOT EXISTS content_items_in_review_idx
    ON platform.content_items (updated_at, id)
    WHERE governance_review_status IN ('changes_requested', 'pending');
CREATE INDEX IF NOT EXISTS ai_drafts_edited_at_id_idx
    ON platform.ai_drafts (edited_at, id) WHERE edited_at IS NOT NULL;
