-- Search: words where an index finds them under row-level security, which pairs were compared with which, and what
-- people say of results.

-- --- words ------------------------------------------------------------------------------------------------------

-- English stems, and no word is dropped: "up" is found, and how rare a word is says what it is worth.
CREATE TEXT SEARCH DICTIONARY stems (TEMPLATE = pg_catalog.snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION library (COPY = pg_catalog.english);
ALTER TEXT SEARCH CONFIGURATION library
    ALTER MAPPING FOR asciiword, asciihword, hword_asciipart, word, hword, hword_part WITH stems;

-- The words of a text with their part of BM25 that does not depend on the query (Robertson and Zaragoza 2009,
-- k1 = 1.2, b = 0.75, an average of 20 words). A word of an answer weighs less than one of a question.
CREATE FUNCTION word_weights(questions text, answers text) RETURNS TABLE (term text, weight real)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT w.lexeme, (said.often * 2.2 / (said.often + 1.2 * (0.25 + 0.75 * size.words / 20.0)))::real
    FROM (SELECT coalesce(sum(cardinality(positions)), 0) AS words FROM unnest(to_tsvector('english', questions))) AS size,
         unnest(setweight(to_tsvector('library', questions), 'A') || setweight(to_tsvector('english', answers), 'D')) AS w,
         LATERAL (SELECT sum(CASE part WHEN 'A' THEN 1.0 ELSE 0.3 END) AS often FROM unnest(w.weights) AS part) AS said
$$;

-- GIN indexes are not used under row-level security (their operators are not leakproof), equality of text is.
CREATE TABLE postings (
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    kind         text NOT NULL CHECK (kind IN ('curated', 'extracted', 'chunk')),
    term         text COLLATE "C" NOT NULL,
    id           uuid NOT NULL,
    weight       real NOT NULL,
    PRIMARY KEY (workspace_id, kind, term, id) INCLUDE (weight)
);
CREATE INDEX postings_of ON postings (id);

CREATE FUNCTION post_pair() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM postings WHERE id = OLD.id;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO postings (workspace_id, kind, term, id, weight)
        SELECT NEW.workspace_id, 'curated', w.term, NEW.id, w.weight
        FROM word_weights(
            array_to_string(ARRAY[NEW.question_text] || NEW.alternate_question_phrasings, E'\n'),
            concat_ws(E'\n', NEW.answer_standard, NEW.answer_advanced)
        ) AS w;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER post_new AFTER INSERT OR DELETE ON q_a_pairs FOR EACH ROW EXECUTE FUNCTION post_pair();
CREATE TRIGGER post_changed AFTER UPDATE ON q_a_pairs FOR EACH ROW
    WHEN ((OLD.question_text, OLD.alternate_question_phrasings, OLD.answer_standard, OLD.answer_advanced)
          IS DISTINCT FROM
          (NEW.question_text, NEW.alternate_question_phrasings, NEW.answer_standard, NEW.answer_advanced))
    EXECUTE FUNCTION post_pair();

-- Deferred: most extractions are promoted in the transaction that brings them, and only the others are searched.
CREATE FUNCTION post_extraction() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM postings WHERE id = OLD.id;
    END IF;
    INSERT INTO postings (workspace_id, kind, term, id, weight)
    SELECT found.workspace_id, 'extracted', w.term, found.id, w.weight
    FROM q_a_extractions AS found, LATERAL word_weights(found.question_text, found.answer_text) AS w
    WHERE TG_OP <> 'DELETE' AND found.id = NEW.id AND found.promoted_to_pair_id IS NULL AND found.invalidated_at IS NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER post_new AFTER INSERT OR DELETE ON q_a_extractions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION post_extraction();
CREATE CONSTRAINT TRIGGER post_changed AFTER UPDATE ON q_a_extractions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ((OLD.promoted_to_pair_id, OLD.invalidated_at) IS DISTINCT FROM (NEW.promoted_to_pair_id, NEW.invalidated_at))
    EXECUTE FUNCTION post_extraction();

CREATE FUNCTION post_chunk() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM postings WHERE id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.invalidated_at IS NULL THEN
        INSERT INTO postings (workspace_id, kind, term, id, weight)
        SELECT NEW.workspace_id, 'chunk', w.term, NEW.id, w.weight
        FROM word_weights(array_to_string(NEW.section_path, E'\n') || E'\n' || NEW.content, '') AS w;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER post_new AFTER INSERT OR DELETE ON chunks FOR EACH ROW EXECUTE FUNCTION post_chunk();
CREATE TRIGGER post_changed AFTER UPDATE ON chunks FOR EACH ROW
    WHEN (OLD.invalidated_at IS DISTINCT FROM NEW.invalidated_at) EXECUTE FUNCTION post_chunk();

-- What is there already. Whoever migrates names no workspace, so the rows are shown for this one statement each.
ALTER TABLE q_a_pairs NO FORCE ROW LEVEL SECURITY;
ALTER TABLE q_a_extractions NO FORCE ROW LEVEL SECURITY;
INSERT INTO postings (workspace_id, kind, term, id, weight)
SELECT pair.workspace_id, 'curated', w.term, pair.id, w.weight
FROM q_a_pairs AS pair, LATERAL word_weights(
    array_to_string(ARRAY[pair.question_text] || pair.alternate_question_phrasings, E'\n'),
    concat_ws(E'\n', pair.answer_standard, pair.answer_advanced)
) AS w;
INSERT INTO postings (workspace_id, kind, term, id, weight)
SELECT found.workspace_id, 'extracted', w.term, found.id, w.weight
FROM q_a_extractions AS found, LATERAL word_weights(found.question_text, found.answer_text) AS w
WHERE found.promoted_to_pair_id IS NULL AND found.invalidated_at IS NULL;
ALTER TABLE q_a_pairs FORCE ROW LEVEL SECURITY;
ALTER TABLE q_a_extractions FORCE ROW LEVEL SECURITY;
SELECT separate_workspaces('postings', also_all => false);

-- Indexes that row-level security keeps out of every plan only cost writes. Ordering by distance may use one.
DROP INDEX q_a_pairs_words, q_a_pairs_trigrams, q_a_pairs_scope, q_a_pairs_anti_scope,
    q_a_extractions_words, q_a_extractions_trigrams;
CREATE INDEX question_variants_letters ON question_variants USING gist (question gist_trgm_ops (siglen = 64));

-- --- chunks -----------------------------------------------------------------------------------------------------

CREATE INDEX chunks_near ON chunks USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64) WHERE invalidated_at IS NULL;
CREATE INDEX chunks_without_vector ON chunks (workspace_id) WHERE embedding IS NULL AND invalidated_at IS NULL;

-- --- near-duplicates --------------------------------------------------------------------------------------------

-- As which version, and by the vectors of which model, a pair was compared with the others.
CREATE TABLE compared_pairs (
    pair_id      uuid PRIMARY KEY REFERENCES q_a_pairs ON DELETE CASCADE,
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    version      int  NOT NULL,
    model        text NOT NULL
);
SELECT separate_workspaces('compared_pairs', also_all => false);

-- --- what people say of results ---------------------------------------------------------------------------------

-- One verdict a person, question and result; whoever thinks better of it changes it.
CREATE TABLE search_feedback (
    id           uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid        NOT NULL REFERENCES workspaces ON DELETE RESTRICT,
    query        text        NOT NULL CHECK (btrim(query) <> '' AND length(query) <= 2000),
    query_sha256 text        NOT NULL CHECK (query_sha256 ~ '^[0-9a-f]{64}$'),
    kind         text        NOT NULL CHECK (kind IN ('curated', 'extracted', 'chunk')),
    result_id    uuid        NOT NULL,
    verdict      text        NOT NULL CHECK (verdict IN ('right', 'wrong')),
    comment      text        NOT NULL DEFAULT '' CHECK (length(comment) <= 2000),
    given_by     text        NOT NULL CHECK (length(given_by) <= 200),
    given_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (workspace_id, kind, result_id, query_sha256, given_by)
);
SELECT separate_workspaces('search_feedback', also_all => false);
