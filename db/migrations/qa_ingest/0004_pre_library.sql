-- The library: what was found in documents (extractions), what people vouch for (pairs) with its history, and how both
-- are searched. Texts come bounded from the service; the checks here hold for whoever writes.

-- --- words of a question and an answer, for the lexical lane ----------------------------------------------------

-- `simple` keeps words that English drops ("up"); questions weigh more than other phrasings, and those more than answers.
CREATE FUNCTION library_words(question text, phrasings text[], answers text[]) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT setweight(to_tsvector('english'::regconfig, question) || to_tsvector('simple'::regconfig, question), 'A')
        || setweight(
            to_tsvector('english'::regconfig, array_to_string(phrasings, ' '))
            || to_tsvector('simple'::regconfig, array_to_string(phrasings, ' ')), 'B')
        || setweight(to_tsvector('english'::regconfig, array_to_string(answers, ' ')), 'D')
$$;

-- Questions are equal when only case, white space and punctuation differ.
CREATE FUNCTION normalised_question(question text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT btrim(regexp_replace(lower(normalize(question, NFKC)), '[\s[:punct:]]+', ' ', 'g'))
$$;

-- --- documents --------------------------------------------------------------------------------------------------

ALTER TABLE documents
    ADD COLUMN extractor         text,
    ADD COLUMN extractor_version text,
    -- What the bucket's listing called the version, so that nothing is read twice for nothing.
    ADD COLUMN listed_version    text,
    DROP CONSTRAINT documents_state_check,
    -- `replaced`: a newer version of the same object is served, or was.
    ADD CHECK (state IN ('received', 'live', 'stale', 'rejected', 'replaced', 'deleted'));

-- One run over one version of an object, also of one that failed: the report that its author gets.
CREATE TABLE ingest_runs (
    id                uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id      uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    document_id       uuid        NOT NULL REFERENCES documents ON DELETE CASCADE,
    extractor         text        NOT NULL,
    extractor_version text        NOT NULL DEFAULT '',
    outcome           text        NOT NULL CHECK (outcome IN ('ingested', 'unchanged', 'rejected', 'deleted')),
    code              text,
    pairs             int         NOT NULL DEFAULT 0 CHECK (pairs >= 0),
    rejects           int         NOT NULL DEFAULT 0 CHECK (rejects >= 0),
    losses            jsonb,
    problems          jsonb       NOT NULL DEFAULT '[]',
    notices           jsonb       NOT NULL DEFAULT '[]',
    started_at        timestamptz NOT NULL,
    finished_at       timestamptz NOT NULL DEFAULT now(),
    CHECK ((outcome = 'rejected') = (code IS NOT NULL))
);
CREATE INDEX ingest_runs_newest ON ingest_runs (workspace_id, finished_at DESC);
CREATE INDEX ingest_runs_document ON ingest_runs (document_id);

-- What looked like a pair and is none. Nothing is left out without a name.
CREATE TABLE ingest_rejects (
    run_id       uuid NOT NULL REFERENCES ingest_runs ON DELETE CASCADE,
    ordinal      int  NOT NULL CHECK (ordinal >= 0),
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    reason       text NOT NULL,
    message      text NOT NULL,
    place        jsonb NOT NULL,
    excerpt      text NOT NULL DEFAULT '',
    characters   int  NOT NULL CHECK (characters >= 0),
    PRIMARY KEY (run_id, ordinal)
);

-- Passages of documents, searchable by themselves.
CREATE TABLE chunks (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id    uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    document_id     uuid        NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal         int         NOT NULL CHECK (ordinal >= 0),
    section_path    text[]      NOT NULL DEFAULT '{}',
    content         text        NOT NULL CHECK (length(content) <= 20000),
    content_sha256  text        NOT NULL,
    embedding       vector(1024),
    embedding_model text,
    words           tsvector    GENERATED ALWAYS AS (library_words(content, '{}', '{}')) STORED,
    invalidated_at  timestamptz,
    UNIQUE (document_id, ordinal),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL)),
    CHECK (embedding IS NULL OR vector_norm(embedding) > 0)
);

-- --- pairs: what people vouch for -------------------------------------------------------------------------------

CREATE TABLE q_a_pairs (
    id                           uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id                 uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    version                      int         NOT NULL DEFAULT 1 CHECK (version >= 1),
    question_text                text        NOT NULL CHECK (btrim(question_text) <> '' AND length(question_text) <= 2000),
    alternate_question_phrasings text[]      NOT NULL DEFAULT '{}',
    variant_details              jsonb       NOT NULL DEFAULT '{}',
    answer_standard              text        NOT NULL CHECK (btrim(answer_standard) <> '' AND length(answer_standard) <= 50000),
    answer_advanced              text        CHECK (length(answer_advanced) <= 50000),
    source_id_token              text        CHECK (length(source_id_token) <= 100),
    source_document_id           uuid        REFERENCES documents ON DELETE SET NULL,
    promoted_from_extraction_id  uuid,
    promoted_from_answer         text,
    origin_kind                  text        NOT NULL CHECK (origin_kind IN
        ('extracted_from_corpus', 'curated_explicit', 'derived_from_bid_response', 'imported_legacy')),
    ingest_source                text,
    sources                      jsonb       NOT NULL DEFAULT '[]',
    primary_domain               text,
    primary_subtopic             text,
    secondary_domain             text,
    secondary_subtopic           text,
    classification_confidence    real        CHECK (classification_confidence BETWEEN 0 AND 1),
    scope_tag                    text[]      NOT NULL DEFAULT '{}',
    anti_scope_tag               text[]      NOT NULL DEFAULT '{}',
    provenance                   text        NOT NULL DEFAULT 'EXTRACTED'
        CHECK (provenance IN ('EXTRACTED', 'INFERRED', 'AMBIGUOUS')),
    confidence                   real        NOT NULL DEFAULT 1 CHECK (confidence BETWEEN 0 AND 1),
    valid_from                   timestamptz NOT NULL DEFAULT now(),
    valid_to                     timestamptz CHECK (valid_to > valid_from),
    publication_status           text        NOT NULL DEFAULT 'draft'
        CHECK (publication_status IN ('draft', 'in_review', 'published', 'archived')),
    superseded_by                uuid        REFERENCES q_a_pairs ON DELETE SET NULL CHECK (superseded_by <> id),
    sensitive                    boolean     NOT NULL DEFAULT false,
    layer                        text,
    verified_at                  timestamptz,
    verified_by                  text,
    governance_review_status     text        CHECK (governance_review_status IN
        ('pending', 'approved', 'reverted', 'changes_requested', 'review_overdue')),
    governance_review_due        timestamptz,
    governance_reviewer          text,
    next_review_date             date,
    review_cadence_days          int         CHECK (review_cadence_days BETWEEN 1 AND 1095),
    metadata                     jsonb       NOT NULL DEFAULT '{}',
    created_at                   timestamptz NOT NULL DEFAULT now(),
    updated_at                   timestamptz NOT NULL DEFAULT now(),
    created_by                   text        NOT NULL,
    updated_by                   text        NOT NULL,
    archived_at                  timestamptz,
    archived_by                  text,
    archive_reason               text,
    words                        tsvector    GENERATED ALWAYS AS (library_words(
        question_text, alternate_question_phrasings, ARRAY[answer_standard, coalesce(answer_advanced, '')])) STORED,
    normalised                   text        GENERATED ALWAYS AS (normalised_question(question_text)) STORED,
    CHECK ((publication_status = 'archived') = (archived_at IS NOT NULL))
);
CREATE UNIQUE INDEX q_a_pairs_id_token ON q_a_pairs (workspace_id, source_id_token) WHERE source_id_token IS NOT NULL;
CREATE INDEX q_a_pairs_current ON q_a_pairs (workspace_id, valid_from DESC)
    WHERE publication_status = 'published' AND superseded_by IS NULL;
CREATE INDEX q_a_pairs_words ON q_a_pairs USING gin (words);
CREATE INDEX q_a_pairs_trigrams ON q_a_pairs USING gin (question_text gin_trgm_ops);
CREATE INDEX q_a_pairs_normalised ON q_a_pairs (workspace_id, normalised);
CREATE INDEX q_a_pairs_scope ON q_a_pairs USING gin (scope_tag);
CREATE INDEX q_a_pairs_anti_scope ON q_a_pairs USING gin (anti_scope_tag);
CREATE INDEX q_a_pairs_superseded ON q_a_pairs (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX q_a_pairs_document ON q_a_pairs (source_document_id) WHERE source_document_id IS NOT NULL;
CREATE INDEX q_a_pairs_review ON q_a_pairs (workspace_id, next_review_date)
    WHERE next_review_date IS NOT NULL AND archived_at IS NULL;

-- One row a way to ask: 0 is the question itself, the others its phrasings in order. One vector each.
CREATE TABLE question_variants (
    pair_id         uuid NOT NULL REFERENCES q_a_pairs ON DELETE CASCADE,
    ordinal         int  NOT NULL CHECK (ordinal >= 0),
    workspace_id    uuid NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    question        text NOT NULL,
    question_sha256 text NOT NULL,
    normalised      text GENERATED ALWAYS AS (normalised_question(question)) STORED,
    embedding       vector(1024),
    embedding_model text,
    PRIMARY KEY (pair_id, ordinal),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL)),
    CHECK (embedding IS NULL OR vector_norm(embedding) > 0)
);
CREATE INDEX question_variants_near ON question_variants USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64);
CREATE INDEX question_variants_workspace ON question_variants (workspace_id, embedding_model);
CREATE INDEX question_variants_normalised ON question_variants (workspace_id, normalised);
CREATE INDEX question_variants_without_vector ON question_variants (workspace_id) WHERE embedding IS NULL;

-- --- the history of a pair: written by the trigger alone --------------------------------------------------------

CREATE TABLE q_a_pair_history (
    pair_id        uuid        NOT NULL REFERENCES q_a_pairs ON DELETE CASCADE,
    version_number int         NOT NULL CHECK (version_number >= 1),
    workspace_id   uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    snapshot       jsonb       NOT NULL,
    change_type    text        NOT NULL CHECK (change_type IN (
        'initial_ingest', 'edit', 'promote_from_extraction', 'promote_from_bid', 'merge', 'split', 'supersede',
        'archive', 'reclassify', 'governance_review_action', 'restore', 'verify', 'source_changed')),
    change_reason  text        NOT NULL DEFAULT '',
    changed_by     text        NOT NULL,
    changed_at     timestamptz NOT NULL DEFAULT now(),
    operation_id   uuid        NOT NULL,
    PRIMARY KEY (pair_id, version_number)
);
CREATE INDEX q_a_pair_history_operation ON q_a_pair_history (operation_id);
CREATE INDEX q_a_pair_history_at ON q_a_pair_history (pair_id, changed_at DESC);

CREATE FUNCTION only_the_trigger_writes_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' AND pg_trigger_depth() > 1 THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM q_a_pairs WHERE id = OLD.pair_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the history of a pair is written by changes of the pair alone' USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER only_the_trigger BEFORE INSERT OR UPDATE OR DELETE ON q_a_pair_history
    FOR EACH ROW EXECUTE FUNCTION only_the_trigger_writes_history();

-- Who changes what and why is said in the transaction: burnish.changed_by, .change_type, .change_reason, .operation_id.
CREATE FUNCTION said_in_the_transaction(name text, fallback text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('burnish.' || name, true), ''), fallback)
$$;

CREATE FUNCTION version_of_pair() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.version := 1;
        NEW.created_by := said_in_the_transaction('changed_by', NEW.created_by);
    ELSE
        IF NEW.workspace_id <> OLD.workspace_id THEN
            RAISE EXCEPTION 'a pair stays in its workspace' USING ERRCODE = 'check_violation';
        END IF;
        NEW.version := OLD.version + 1;
        NEW.created_at := OLD.created_at;
        NEW.created_by := OLD.created_by;
    END IF;
    NEW.updated_at := now();
    NEW.updated_by := said_in_the_transaction('changed_by', NEW.updated_by);
    IF NEW.publication_status = 'archived' AND NEW.archived_at IS NULL THEN
        NEW.archived_at := now();
        NEW.archived_by := NEW.updated_by;
    ELSIF NEW.publication_status <> 'archived' THEN
        NEW.archived_at := NULL;
        NEW.archived_by := NULL;
        NEW.archive_reason := NULL;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER a_version BEFORE INSERT OR UPDATE ON q_a_pairs FOR EACH ROW EXECUTE FUNCTION version_of_pair();

CREATE FUNCTION no_supersession_cycle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.superseded_by IS NULL THEN
        RETURN NEW;
    END IF;
    -- Two transactions could each add half of a circle.
    PERFORM pg_advisory_xact_lock(hashtextextended('supersession.' || NEW.workspace_id, 0));
    IF EXISTS (
        WITH RECURSIVE onward AS (
            SELECT NEW.superseded_by AS id
            UNION SELECT pair.superseded_by FROM q_a_pairs AS pair JOIN onward ON pair.id = onward.id
            WHERE pair.superseded_by IS NOT NULL
        )
        SELECT FROM onward WHERE id = NEW.id
    ) THEN
        RAISE EXCEPTION 'pairs would supersede each other in a circle' USING ERRCODE = 'check_violation';
    END IF;
    IF NOT EXISTS (SELECT FROM q_a_pairs WHERE id = NEW.superseded_by AND workspace_id = NEW.workspace_id) THEN
        RAISE EXCEPTION 'the pair that supersedes is of another workspace' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER b_supersession BEFORE INSERT OR UPDATE OF superseded_by ON q_a_pairs
    FOR EACH ROW EXECUTE FUNCTION no_supersession_cycle();

CREATE FUNCTION remember_pair() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept jsonb;
BEGIN
    INSERT INTO q_a_pair_history
        (pair_id, version_number, workspace_id, snapshot, change_type, change_reason, changed_by, operation_id)
    VALUES (
        NEW.id, NEW.version, NEW.workspace_id, to_jsonb(NEW) - 'words' - 'normalised',
        said_in_the_transaction('change_type', CASE TG_OP WHEN 'INSERT' THEN 'initial_ingest' ELSE 'edit' END),
        said_in_the_transaction('change_reason', ''), NEW.updated_by,
        said_in_the_transaction('operation_id', gen_random_uuid()::text)::uuid
    );
    IF TG_OP = 'INSERT' OR (NEW.question_text, NEW.alternate_question_phrasings)
            IS DISTINCT FROM (OLD.question_text, OLD.alternate_question_phrasings) THEN
        -- A vector goes with its text: what is still asked the same way keeps it, the rest is embedded again.
        SELECT jsonb_object_agg(question, jsonb_build_array(embedding::text, embedding_model)) INTO kept
        FROM question_variants WHERE pair_id = NEW.id AND embedding IS NOT NULL;
        DELETE FROM question_variants WHERE pair_id = NEW.id;
        INSERT INTO question_variants (pair_id, ordinal, workspace_id, question, question_sha256, embedding, embedding_model)
        SELECT NEW.id, asked.ordinal - 1, NEW.workspace_id, asked.question,
               encode(sha256(convert_to(asked.question, 'UTF8')), 'hex'),
               (kept -> asked.question ->> 0)::vector, kept -> asked.question ->> 1
        FROM unnest(ARRAY[NEW.question_text] || NEW.alternate_question_phrasings) WITH ORDINALITY AS asked (question, ordinal);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER z_history AFTER INSERT OR UPDATE ON q_a_pairs FOR EACH ROW EXECUTE FUNCTION remember_pair();

-- --- extractions: what an extractor found; never changed, only promoted, invalidated and embedded ----------------

CREATE TABLE q_a_extractions (
    id                   uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id         uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    document_id          uuid        NOT NULL REFERENCES documents ON DELETE CASCADE,
    run_id               uuid        REFERENCES ingest_runs ON DELETE SET NULL,
    object_key           text        NOT NULL,
    object_version       text        NOT NULL,
    extractor_kind       text        NOT NULL,
    extractor_version    text        NOT NULL,
    layout               text,
    ordinal              int         NOT NULL CHECK (ordinal >= 0),
    content_sha256       text        NOT NULL,
    question_text        text        NOT NULL CHECK (btrim(question_text) <> '' AND length(question_text) <= 2000),
    answer_text          text        NOT NULL CHECK (btrim(answer_text) <> '' AND length(answer_text) <= 50000),
    answer_standard      text        CHECK (length(answer_standard) <= 50000),
    answer_advanced      text        CHECK (length(answer_advanced) <= 50000),
    variants             jsonb       NOT NULL DEFAULT '[]',
    source_file_basename text,
    source_section_path  text[]      NOT NULL DEFAULT '{}',
    source_sheet         text,
    source_table_index   int         CHECK (source_table_index >= 0),
    source_row_index     int         CHECK (source_row_index >= 0),
    source_line          int         CHECK (source_line >= 1),
    source_id_token      text        CHECK (length(source_id_token) <= 100),
    scope_tag            text[]      NOT NULL DEFAULT '{}',
    anti_scope_tag       text[]      NOT NULL DEFAULT '{}',
    primary_domain       text,
    primary_subtopic     text,
    secondary_domain     text,
    secondary_subtopic   text,
    provenance           text        NOT NULL DEFAULT 'EXTRACTED'
        CHECK (provenance IN ('EXTRACTED', 'INFERRED', 'AMBIGUOUS')),
    confidence           real        NOT NULL DEFAULT 1 CHECK (confidence BETWEEN 0 AND 1),
    publication_status   text        NOT NULL DEFAULT 'draft'
        CHECK (publication_status IN ('draft', 'in_review', 'published', 'archived')),
    valid_from           timestamptz,
    valid_to             timestamptz CHECK (valid_to > valid_from),
    sources              jsonb       NOT NULL DEFAULT '[]',
    verified_at          timestamptz,
    verified_by          text,
    layer                text,
    next_review_date     date,
    review_cadence_days  int         CHECK (review_cadence_days BETWEEN 1 AND 1095),
    sensitive            boolean     NOT NULL DEFAULT false,
    revised              boolean     NOT NULL DEFAULT false,
    fragment             boolean     NOT NULL DEFAULT false,
    citations            text[]      NOT NULL DEFAULT '{}',
    metadata             jsonb       NOT NULL DEFAULT '{}',
    created_at           timestamptz NOT NULL DEFAULT now(),
    promoted_to_pair_id  uuid        REFERENCES q_a_pairs ON DELETE SET NULL,
    promoted_at          timestamptz,
    promoted_by          text,
    invalidated_at       timestamptz,
    invalidation_reason  text,
    embedding            vector(1024),
    embedding_model      text,
    words                tsvector    GENERATED ALWAYS AS (library_words(question_text, '{}', ARRAY[answer_text])) STORED,
    normalised           text        GENERATED ALWAYS AS (normalised_question(question_text)) STORED,
    CHECK ((invalidated_at IS NULL) = (invalidation_reason IS NULL)),
    CHECK ((embedding IS NULL) = (embedding_model IS NULL)),
    CHECK (embedding IS NULL OR vector_norm(embedding) > 0)
);
-- Two runs over the same version end in one set of rows; an invalidated one leaves room for the next.
CREATE UNIQUE INDEX q_a_extractions_once ON q_a_extractions
    (workspace_id, object_key, object_version, extractor_kind, extractor_version, ordinal) WHERE invalidated_at IS NULL;
CREATE INDEX q_a_extractions_document ON q_a_extractions (document_id) WHERE invalidated_at IS NULL;
CREATE INDEX q_a_extractions_pair ON q_a_extractions (promoted_to_pair_id) WHERE promoted_to_pair_id IS NOT NULL;
CREATE INDEX q_a_extractions_words ON q_a_extractions USING gin (words) WHERE invalidated_at IS NULL;
CREATE INDEX q_a_extractions_trigrams ON q_a_extractions USING gin (question_text gin_trgm_ops) WHERE invalidated_at IS NULL;
CREATE INDEX q_a_extractions_normalised ON q_a_extractions (workspace_id, normalised) WHERE invalidated_at IS NULL;
CREATE INDEX q_a_extractions_near ON q_a_extractions USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64) WHERE invalidated_at IS NULL;
CREATE INDEX q_a_extractions_without_vector ON q_a_extractions (workspace_id)
    WHERE embedding IS NULL AND invalidated_at IS NULL;

ALTER TABLE q_a_pairs ADD FOREIGN KEY (promoted_from_extraction_id) REFERENCES q_a_extractions ON DELETE SET NULL;

CREATE FUNCTION an_extraction_stays_as_found() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moving CONSTANT text[] := ARRAY['promoted_to_pair_id', 'promoted_at', 'promoted_by', 'invalidated_at',
        'invalidation_reason', 'embedding', 'embedding_model', 'run_id', 'words', 'normalised'];
BEGIN
    IF to_jsonb(NEW) - moving <> to_jsonb(OLD) - moving THEN
        RAISE EXCEPTION 'what an extractor found is never changed' USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.invalidated_at IS NOT NULL AND NEW.invalidated_at IS DISTINCT FROM OLD.invalidated_at THEN
        RAISE EXCEPTION 'an invalidated extraction stays so' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER stays_as_found BEFORE UPDATE ON q_a_extractions
    FOR EACH ROW EXECUTE FUNCTION an_extraction_stays_as_found();

-- --- what else belongs to a pair --------------------------------------------------------------------------------

CREATE TABLE citations (
    id             uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id   uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    pair_id        uuid        NOT NULL REFERENCES q_a_pairs ON DELETE CASCADE,
    citing_entity  text        NOT NULL CHECK (length(citing_entity) <= 100),
    citing_id      text        NOT NULL CHECK (length(citing_id) <= 500),
    citation_kind  text        NOT NULL CHECK (citation_kind IN
        ('source', 'verbatim_quote', 'paraphrase', 'derived_inference', 'q_a_match')),
    confidence     real        NOT NULL DEFAULT 1 CHECK (confidence BETWEEN 0 AND 1),
    created_at     timestamptz NOT NULL DEFAULT now(),
    created_by     text        NOT NULL,
    invalidated_at timestamptz,
    UNIQUE (pair_id, citing_entity, citing_id, citation_kind)
);

-- What a person should look at: near-duplicates, drafts and their finals, edits that a changed source proposes.
CREATE TABLE suggestions (
    id            uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id  uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    kind          text        NOT NULL CHECK (kind IN ('near_duplicate', 'same_question', 'draft_final', 'proposed_edit', 'source_changed')),
    pair_id       uuid        REFERENCES q_a_pairs ON DELETE CASCADE,
    other_pair_id uuid        REFERENCES q_a_pairs ON DELETE CASCADE,
    extraction_id uuid        REFERENCES q_a_extractions ON DELETE CASCADE,
    natural_key   text        NOT NULL,
    detail        jsonb       NOT NULL DEFAULT '{}',
    state         text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'accepted', 'dismissed', 'outdated')),
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text        NOT NULL,
    decided_at    timestamptz,
    decided_by    text,
    UNIQUE (workspace_id, kind, natural_key),
    CHECK ((state = 'open') = (decided_at IS NULL))
);
CREATE INDEX suggestions_open ON suggestions (workspace_id, kind, created_at) WHERE state = 'open';
CREATE INDEX suggestions_pair ON suggestions (pair_id);

-- Vectors by the text they are of, so that the same question is embedded once; only for the workspace that asked.
CREATE TABLE embedding_cache (
    workspace_id uuid         NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    model        text         NOT NULL,
    text_sha256  text         NOT NULL,
    embedding    vector(1024) NOT NULL CHECK (vector_norm(embedding) > 0),
    used_at      timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, model, text_sha256)
);

-- --- each workspace by itself -----------------------------------------------------------------------------------

SELECT separate_workspaces('ingest_runs', also_all => false);
SELECT separate_workspaces('ingest_rejects', also_all => false);
SELECT separate_workspaces('chunks', also_all => false);
SELECT separate_workspaces('q_a_pairs', also_all => false);
SELECT separate_workspaces('question_variants', also_all => false);
SELECT separate_workspaces('q_a_pair_history', also_all => false);
SELECT separate_workspaces('q_a_extractions', also_all => false);
SELECT separate_workspaces('citations', also_all => false);
SELECT separate_workspaces('suggestions', also_all => false);
SELECT separate_workspaces('embedding_cache', also_all => false);
